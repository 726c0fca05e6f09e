import { assert, it } from "@effect/vitest"
import { canonical } from "#src/webhooks/event-types.ts"
import { delayAfter, retryAfterSeconds } from "#src/webhooks/retries.ts"

it("ten tries over three days, none of them early, all of them a little apart from others", () => {
  const least = [1, 2, 3, 4, 5, 6, 7, 8, 9].map((failed) => delayAfter(failed, 0, undefined))
  assert.deepStrictEqual(least, [5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400])
  assert.strictEqual(delayAfter(10, 0, undefined), undefined)
  assert.strictEqual(delayAfter(10, 0, 60), undefined)
  assert.approximately(delayAfter(2, 0.999, undefined) ?? 0, 330, 1)
})

it("who asks to be left alone for a while is, for a day at most", () => {
  assert.strictEqual(delayAfter(1, 0, 60), 60)
  assert.strictEqual(delayAfter(2, 0, 60), 300)
  assert.strictEqual(delayAfter(1, 0, 1e9), 86_400)
  const now = Date.parse("2026-01-01T00:00:00Z")
  assert.strictEqual(retryAfterSeconds("120", now), 120)
  assert.strictEqual(retryAfterSeconds("Thu, 01 Jan 2026 00:01:00 GMT", now), 60)
  assert.strictEqual(retryAfterSeconds("Wed, 31 Dec 2025 00:00:00 GMT", now), 0)
  for (const nonsense of ["", "soon", "-1", "1e9", undefined]) {
    assert.isTrue([undefined, 0].includes(retryAfterSeconds(nonsense, now)), String(nonsense))
  }
})

it("events are listed once each, in one order", () => {
  assert.deepStrictEqual(canonical(["budget.exceeded", "deploy.failed", "budget.exceeded"]), [
    "deploy.failed",
    "budget.exceeded"
  ])
})
