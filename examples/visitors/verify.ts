// Who sends a request to an app that is not for everybody. Copy it, or use any library for JWT (RFC 7519) with the same
// checks: the edge puts a token into the header X-Svc-User, signed by HS256 with the environment's secret.
import { createHmac, timingSafeEqual } from "node:crypto"

export interface Visitor {
  /** Stays the same when the address changes. */
  readonly id: string
  readonly email: string
}

/** Seconds that the clocks may differ. */
const tolerance = 30

/**
 * The visitor, or undefined where the header says of nobody: calls of the platform itself carry none, and neither do
 * requests to an environment that is public. `secret` is `whsec_...` as
 * `svc environments rotate-secret` showed it, `host` the name under which the app is reached, and the names in
 * `headers` are in lower case, as Node gives them. Whoever reaches the app past the edge can send any header: only
 * what this answers says who they are.
 */
export const verify = (
  secret: string,
  headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>,
  host: string,
  now = Date.now()
): Visitor | undefined => {
  // Two of them for a day after the secret was replaced: one for each.
  for (const token of String(headers["x-svc-user"] ?? "").split(",", 4)) {
    const [header = "", claims = "", mac = "", ...rest] = token.trim().split(".")
    const given = Buffer.from(mac, "base64url")
    const expected = createHmac("sha256", secret).update(`${header}.${claims}`).digest()
    if (rest.length > 0 || given.length !== expected.length || !timingSafeEqual(given, expected)) continue
    // What is signed with the secret was written by the edge; no other algorithm is asked for, whatever it says.
    const { sub, email, host: meant, iat, exp } = JSON.parse(Buffer.from(claims, "base64url").toString())
    const seconds = now / 1000
    if (meant === host && iat - tolerance <= seconds && seconds < exp + tolerance) return { id: sub, email }
  }
  return undefined
}
