/** A failover as it is written down beside the primary: decided, and done. `failover.ts` carries it out. */
import * as Schema from "effect/Schema"

export const Failover = Schema.Struct({
  /** Milliseconds since 1970. */
  at: Schema.Int,
  /** Number of the standby. */
  replica: Schema.Int,
  /** What it is known to have lacked; null: not known. */
  lagBytes: Schema.NullOr(Schema.Int)
})
export type Failover = typeof Failover.Type

/** A decision that is being carried out. */
export const FailoverPlan = Schema.Struct({
  ...Failover.fields,
  /** The standby whose data folder comes. */
  from: Schema.String,
  /** The history that the folder belongs to. */
  lineage: Schema.String,
  /** The one that begins with it. */
  era: Schema.Int
})
export type FailoverPlan = typeof FailoverPlan.Type
