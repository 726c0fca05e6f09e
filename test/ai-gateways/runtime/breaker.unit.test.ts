import { assert, it } from "@effect/vitest"
import { makeBreaker } from "#src/ai-gateways/runtime/breaker.ts"

const opened = () => {
  const breaker = makeBreaker()
  for (let failure = 0; failure < 5; failure++) {
    assert.isTrue(breaker.admits(0))
    breaker.failed(0)
  }
  return breaker
}

it("opens after five failures in a row, and lets one call try after ten seconds", () => {
  const breaker = opened()
  assert.isTrue(breaker.isOpen(9_999))
  assert.isFalse(breaker.admits(9_999))
  assert.isTrue(breaker.admits(10_000))
  assert.isFalse(breaker.admits(10_000))
  breaker.failed(10_000)
  assert.isFalse(breaker.admits(29_999))
  assert.isTrue(breaker.admits(30_000))
  breaker.succeeded()
  assert.isTrue(breaker.admits(30_000))
  assert.isFalse(breaker.isOpen(30_000))
})

it("a success in between counts the failures anew", () => {
  const breaker = makeBreaker()
  for (let failure = 0; failure < 20; failure++) {
    breaker.failed(0)
    if (failure % 4 === 3) breaker.succeeded()
  }
  assert.isTrue(breaker.admits(0))
})

it("a trial that told nothing lets another try", () => {
  const breaker = opened()
  assert.isTrue(breaker.admits(10_000))
  breaker.ended()
  assert.isTrue(breaker.admits(10_000))
})

it("an answer that has begun lets others call, until one more fails", () => {
  const breaker = opened()
  assert.isTrue(breaker.admits(10_000))
  breaker.begun()
  assert.isTrue(breaker.admits(10_000))
  assert.isTrue(breaker.admits(10_000))
  breaker.failed(10_001)
  assert.isFalse(breaker.admits(10_002))
})

it("rests for five minutes at most", () => {
  const breaker = opened()
  let now = 0
  for (let trial = 0; trial < 20; trial++) {
    now += 300_000
    assert.isTrue(breaker.admits(now), `${trial}`)
    breaker.failed(now)
  }
})
