import { createHmac } from "node:crypto"
import { assert, describe, it } from "@effect/vitest"
import * as Redacted from "effect/Redacted"
import { newSigningSecret } from "#src/outbound/signature.ts"
import { makeTicket } from "#src/visitors/tickets.ts"
import { verify } from "../../examples/visitors/verify.ts"

const [secret, former] = [newSigningSecret(), newSigningSecret()]
const key = Redacted.make("a".repeat(64))
const nowSeconds = 1_800_000_000
const person = { userId: "0199", email: "ada@example.test" }
const host = "shop.apps.localhost"

/** What HAProxy takes out of the ticket. */
const told = (secrets = [secret]) => {
  const ticket = makeTicket(key, { host, environmentUid: "e", person, secrets, nowSeconds })
  const claims = Buffer.from(Redacted.value(ticket).split(".")[1] ?? "", "base64url")
  return String(JSON.parse(claims.toString()).u)
}
const verified = (token: string | undefined, at = nowSeconds, on = host, by = secret) =>
  verify(Redacted.value(by), token === undefined ? {} : { "x-svc-user": token }, on, at * 1000)
const forged = (header: object, claims: object, by: string, algorithm = "sha256") => {
  const text = [header, claims]
    .map((part) => Buffer.from(JSON.stringify(part)).toString("base64url"))
    .join(".")
  return `${text}.${by === "" ? "" : createHmac(algorithm, by).update(text).digest("base64url")}`
}

describe("the example of an app that knows its visitors", () => {
  it("takes what the edge says, also while the secret is replaced", () => {
    const known = { id: "0199", email: "ada@example.test" }
    assert.deepStrictEqual(verified(told()), known)
    assert.deepStrictEqual(verified(told([secret, former])), known)
    assert.deepStrictEqual(verified(told([secret, former]), nowSeconds, host, former), known)
    assert.deepStrictEqual(verified(told(), nowSeconds + 299), known)
  })

  it("takes nothing else", () => {
    const claims = { sub: "1", email: "eve@evil.test", host, iat: nowSeconds, exp: nowSeconds + 300 }
    const wrong = [
      undefined,
      "",
      "a.b.c",
      told([former]),
      told().slice(0, -3),
      `${told()}.x`,
      forged({ alg: "none", typ: "JWT" }, claims, ""),
      forged({ alg: "HS256", typ: "JWT" }, claims, "another"),
      forged({ alg: "HS512", typ: "JWT" }, claims, Redacted.value(secret), "sha512"),
      forged({ alg: "HS256", typ: "JWT" }, { ...claims, exp: undefined }, Redacted.value(secret)),
      forged({ alg: "HS256", typ: "JWT" }, { ...claims, iat: undefined }, Redacted.value(secret))
    ]
    for (const token of wrong) assert.isUndefined(verified(token), token)
    assert.isUndefined(verified(told(), nowSeconds + 331))
    assert.isUndefined(verified(told(), nowSeconds - 31))
    assert.isUndefined(verified(told(), nowSeconds, "other.apps.localhost"))
  })
})
