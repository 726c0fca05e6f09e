/** Where the requests to an environment go: an address that was judged, never a name. */
import * as Schema from "effect/Schema"

export const Target = Schema.Struct({
  /** An IP address. */
  address: Schema.String,
  port: Schema.Int,
  /** Over TLS, and the certificate has to be for this name. */
  tls: Schema.optionalKey(Schema.String),
  /** `Host` of the requests; absent: the one that they came with. */
  host: Schema.optionalKey(Schema.String),
  /**
   * Of an app that may have several instances: the others. Of all of them the edge takes one with few requests under way,
   * and counts these.
   */
  others: Schema.optionalKey(Schema.Array(Schema.Struct({ address: Schema.String, port: Schema.Int })))
})
export type Target = typeof Target.Type

export { AccessMode } from "#schemas/access-policy.ts"
