/** What can go wrong when somebody proves who they are. Messages are for that person and tell of nobody else. */
import * as Schema from "effect/Schema"

/** One message for an unknown address, a wrong password and an account without one. */
export class WrongCredentials extends Schema.TaggedError<WrongCredentials>()("WrongCredentials", {
  message: Schema.String
}) {}

/** The link was used, is too old, or never was one. */
export class LinkDead extends Schema.TaggedError<LinkDead>()("LinkDead", { message: Schema.String }) {}

export class TooManyTries extends Schema.TaggedError<TooManyTries>()("TooManyTries", {
  message: Schema.String,
  /** Tries a minute. */
  limit: Schema.Int,
  /** Seconds. */
  retryAfter: Schema.Int
}) {}

/** A fault of one field. */
export class BadInput extends Schema.TaggedError<BadInput>()("BadInput", {
  message: Schema.String,
  field: Schema.String
}) {}

/** Signing in is too long ago for what was asked. */
export class ProveAgain extends Schema.TaggedError<ProveAgain>()("ProveAgain", { message: Schema.String }) {}

/** The provider did not answer as it should, or does not vouch for the address. */
export class ProviderFailed extends Schema.TaggedError<ProviderFailed>()("ProviderFailed", {
  message: Schema.String
}) {}
