/** What can go wrong in the store. Causes are kept for logs; messages are for people and hold no secret. */
import * as Schema from "effect/Schema"

export class NotFound extends Schema.TaggedError<NotFound>()("NotFound", {
  message: Schema.String
}) {}

/** The name is in use in the same scope. */
export class NameTaken extends Schema.TaggedError<NameTaken>()("NameTaken", {
  message: Schema.String
}) {}

/** The record changed since the caller read it. */
export class RevisionConflict extends Schema.TaggedError<RevisionConflict>()("RevisionConflict", {
  message: Schema.String
}) {}

/** A rule says no: the resource is protected against deletion, or in use, or names what is not there. */
export class Refused extends Schema.TaggedError<Refused>()("Refused", {
  message: Schema.String,
  code: Schema.String,
  /** Resources for whose sake it is refused. */
  addresses: Schema.optionalKey(Schema.Array(Schema.String)),
  /** Fields of the specification that are at fault. */
  faults: Schema.optionalKey(Schema.Array(Schema.Struct({ pointer: Schema.String, message: Schema.String })))
}) {}
