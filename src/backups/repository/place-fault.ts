import * as Schema from "effect/Schema"

/** What was wrong, for programs; the message says it to people, without credentials. */
export const PlaceFault = Schema.Literals([
  "dns",
  "blocked_address",
  "tls",
  "credentials",
  "bucket",
  "region",
  "clock",
  "not_found",
  "read",
  "write",
  "delete",
  "no_space",
  "timeout",
  "unreachable"
])
export type PlaceFault = typeof PlaceFault.Type
