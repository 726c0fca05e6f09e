/** What needs no server. */
import { assert, it } from "@effect/vitest"
import * as Redacted from "effect/Redacted"
import { asProcessorError } from "#src/payments/ProcessorError.ts"
import { redirectFault } from "#src/payments/redirects.ts"
import { allows } from "#src/payments/scopes.ts"
import { inForce, overlapMs, rotated } from "#src/payments/webhook-secrets.ts"
import { pauseAfter } from "#src/payments/work.ts"

it("customers are sent back to origins that are listed, and to nothing that looks like one", () => {
  const origins = ["https://shop.example.com", "https://b.example.com:8443"]
  const good = [
    "https://shop.example.com",
    "https://shop.example.com/",
    "https://shop.example.com/a/../b?x={CHECKOUT_SESSION_ID}#top",
    "https://shop.example.com?x=https://evil.example",
    "https://b.example.com:8443/@home"
  ]
  for (const address of good) assert.isUndefined(redirectFault(origins, address), address)
  const bad = [
    "https://shop.example.com.evil.example",
    "https://shop.example.com@evil.example",
    "https://shop.example.com:443@evil.example/",
    "https://shop.example.com:8443/",
    "https://b.example.com/",
    "https://shop.example.comx/",
    "https://shop.example.com\\.evil.example",
    "HTTPS://shop.example.com/",
    "https://shop.example.com/\n",
    "https://shop.example.com/ä"
  ]
  for (const address of bad) assert.isString(redirectFault(origins, address), address)
})

it("a right to write includes the right to read, and nothing else", () => {
  assert.isTrue(allows(["products:write"], "products:read"))
  assert.isFalse(allows(["products:read"], "products:write"))
  assert.isFalse(allows(["products:write"], "prices:read"))
})

it("a secret that was replaced holds for a day; the same one given again replaces nothing", () => {
  const first = rotated(undefined, "a", 0)
  assert.deepStrictEqual(first, { current: "a" })
  assert.deepStrictEqual(rotated(first, "a", 5), { current: "a" })
  const second = rotated({ ...first, endpoint: "e" }, "b", 1_000)
  const at = (nowMs: number) => inForce(second, undefined, nowMs).map(Redacted.value)
  assert.sameMembers(at(1_000 + overlapMs - 1), ["b", "e", "a"])
  assert.sameMembers(at(1_000 + overlapMs), ["b", "e"])
  assert.sameMembers(inForce(second, "c", 1_000 + overlapMs).map(Redacted.value), ["c", "b", "e"])
})

it("tries of an event come further and further apart, and as late as Stripe asks", () => {
  assert.deepStrictEqual([pauseAfter(0, 1), pauseAfter(1, 1), pauseAfter(3, 0)], [5, 10, 20])
  assert.strictEqual(pauseAfter(20, 1), 3_600)
  assert.strictEqual(pauseAfter(0, 0, 40), 40)
  assert.strictEqual(pauseAfter(0, 0, 1e9), 3_600)
})

it("what Stripe says of keys and ids stays here", () => {
  const said = (fields: object) =>
    asProcessorError(Object.assign(new Error("x"), { type: "StripeError", statusCode: 400, ...fields }))
  const about = { message: "Invalid currency: xxx", param: "currency" }
  assert.deepInclude(said(about), { reason: "rejected", said: "Invalid currency: xxx" })
  assert.isUndefined(said({ message: "Something about you" }).said)
  assert.isUndefined(said({ ...about, message: "No such price: 'price_1Abcdef'" }).said)
  assert.isUndefined(said({ ...about, message: "Wrong key rk_test_0123456789" }).said)
  const key = said({ statusCode: 401, message: "Invalid API Key provided: rk_test_0123456789" })
  assert.strictEqual(key.reason, "credential")
  assert.notInclude(JSON.stringify(key), "rk_test")
  assert.strictEqual(said({ statusCode: 403 }).reason, "right")
  // The documentation calls it an invalid request.
  assert.strictEqual(said({ message: "The key does not have the required permissions" }).reason, "right")
  assert.strictEqual(said({ statusCode: 404, code: "resource_missing", param: "id" }).reason, "missing")
  assert.strictEqual(said({ code: "resource_missing", param: "product" }).reason, "rejected")
  assert.strictEqual(said({ statusCode: 409 }).reason, "busy")
  assert.strictEqual(asProcessorError(new Error("ECONNRESET")).reason, "away")
  assert.deepInclude(said({ statusCode: 429, headers: { "retry-after": "9" } }), {
    reason: "away",
    retryAfterSeconds: 9
  })
  assert.deepInclude(said({ statusCode: 500, headers: { "idempotent-replayed": "true" } }), {
    reason: "away",
    replayed: true
  })
})
