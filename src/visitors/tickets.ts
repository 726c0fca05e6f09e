/**
 * What lets a browser through to one host: a cookie that HAProxy checks by itself, a JWT (RFC 7519) keyed with a secret of
 * the platform. In it is what the app is told, another JWT, keyed with the environment's secret: HAProxy hands it to the
 * app as `X-Svc-User`. The cookie itself never gets there.
 */
import { createHmac } from "node:crypto"
import * as Redacted from "effect/Redacted"

/** A removed member, a withdrawn invitation and an ended session count after so long at the latest. */
export const ticketSeconds = 300

const encoded = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url")
const header = encoded({ alg: "HS256", typ: "JWT" })

const jwt = (key: Redacted.Redacted, claims: object): string => {
  const text = `${header}.${encoded(claims)}`
  return `${text}.${createHmac("sha256", Redacted.value(key)).update(text).digest("base64url")}`
}

export interface Person {
  readonly userId: string
  readonly email: string
}

/**
 * `person` undefined: what comes is no visitor, such as a call of the platform itself. While the environment's secret is
 * replaced there are two; the app is told with each of them, separated by a comma.
 */
export const makeTicket = (
  key: Redacted.Redacted,
  {
    host,
    environmentUid,
    person,
    secrets,
    nowSeconds
  }: {
    readonly host: string
    readonly environmentUid: string
    readonly person: Person | undefined
    readonly secrets: ReadonlyArray<Redacted.Redacted>
    readonly nowSeconds: number
  }
): Redacted.Redacted => {
  const [iat, exp] = [nowSeconds, nowSeconds + ticketSeconds]
  const told = person === undefined ? undefined : { sub: person.userId, email: person.email, host, iat, exp }
  const u = told === undefined ? undefined : secrets.map((secret) => jwt(secret, told)).join(",")
  return Redacted.make(jwt(key, { h: host, e: environmentUid, exp, ...(u === undefined ? {} : { u }) }))
}
