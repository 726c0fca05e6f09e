/** Where the requests to an environment go: an address that was judged, never a name. */
import * as Schema from "effect/Schema"

export const Target = Schema.Struct({
  /** An IP address. */
  address: Schema.String,
  port: Schema.Int,
  /** Over TLS, and the certificate has to be for this name. */
  tls: Schema.optionalKey(Schema.String),
  /** `Host` of the requests; absent: the one that they came with. */
  host: Schema.optionalKey(Schema.String)
})
export type Target = typeof Target.Type

export const AccessMode = Schema.Literals(["public", "authenticated", "organization", "invite_only"])
/** Who may see an environment. */
export type AccessMode = typeof AccessMode.Type
