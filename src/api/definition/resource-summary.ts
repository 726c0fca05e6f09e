/** A resource of any kind as lists and the watch show it. */
import * as Schema from "effect/Schema"
import { Condition, Phase } from "#schemas/condition.ts"
import { Difference } from "#schemas/difference.ts"
import { Id, Timestamp } from "./fields.ts"

export const summary = {
  uid: Id,
  address: Schema.String.annotate({ description: "`project/environment/kind/name`" }),
  kind: Schema.String,
  project: Schema.NullOr(Schema.String),
  environment: Schema.NullOr(Schema.String),
  name: Schema.String,
  phase: Phase,
  conditions: Schema.Array(Condition),
  differences: Schema.Array(Difference).annotate({
    description: "What departed from the specification at the last look"
  }),
  generation: Schema.Int,
  observedGeneration: Schema.Int,
  attempt: Schema.Int.annotate({ description: "Tries in a row without success" }),
  nextAttemptAt: Schema.NullOr(Timestamp),
  lastError: Schema.NullOr(Schema.String),
  handledRetry: Schema.NullOr(Schema.String).annotate({
    description: "Token of the last retry that was carried out"
  }),
  waitingOn: Schema.NullOr(Schema.Struct({ uid: Id, kind: Schema.String, name: Schema.String })).annotate({
    description: "The resource that must come or change first; null also while nothing has the awaited name"
  }),
  protected: Schema.Boolean,
  managedBy: Schema.Literals(["api", "manifest"]),
  deleting: Schema.Boolean,
  revision: Schema.String,
  createdAt: Timestamp,
  updatedAt: Timestamp
}
export const ResourceSummary = Schema.Struct(summary).annotate({ identifier: "ResourceSummary" })

/** One message of the watch. */
export const ResourceChange = Schema.Struct({
  deleted: Schema.Boolean,
  resource: ResourceSummary
}).annotate({ identifier: "ResourceChange" })
