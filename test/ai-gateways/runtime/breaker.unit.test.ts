import { assert, it } from "@effect/vitest"
import { type Breaker, makeBreaker } from "#src/ai-gateways/runtime/breaker.ts"

const admitted = (breaker: Breaker, now: number) =>
  breaker.admit(now) ?? assert.fail(`no call may be made at ${now}`)
const fail = (breaker: Breaker, now: number) => admitted(breaker, now).failed(now, false)
const opened = () => {
  const breaker = makeBreaker()
  for (let failure = 0; failure < 5; failure++) fail(breaker, 0)
  return breaker
}

it("opens after five failures in a row, and lets one call try after ten seconds", () => {
  const breaker = opened()
  assert.isTrue(breaker.isOpen(9_999))
  assert.isUndefined(breaker.admit(9_999))
  const trial = admitted(breaker, 10_000)
  assert.isUndefined(breaker.admit(10_000))
  trial.failed(10_000, false)
  assert.isUndefined(breaker.admit(29_999))
  admitted(breaker, 30_000).succeeded()
  admitted(breaker, 30_000)
  assert.isFalse(breaker.isOpen(30_000))
})

it("a success in between counts the failures anew", () => {
  const breaker = makeBreaker()
  for (let failure = 0; failure < 20; failure++) {
    fail(breaker, 0)
    if (failure % 4 === 3) admitted(breaker, 0).succeeded()
  }
  admitted(breaker, 0)
})

it("a trial that told nothing lets another try", () => {
  const breaker = opened()
  admitted(breaker, 10_000).ended()
  admitted(breaker, 10_000)
})

it("a trial is ended by nobody else", () => {
  const breaker = makeBreaker()
  const earlier = admitted(breaker, 0)
  for (let failure = 0; failure < 5; failure++) fail(breaker, 0)
  const trial = admitted(breaker, 10_000)
  earlier.ended()
  earlier.failed(10_000, false)
  assert.isUndefined(breaker.admit(10_000))
  trial.ended()
  admitted(breaker, 10_000)
})

it("tries of the same call count once", () => {
  const breaker = makeBreaker()
  for (let attempt = 0; attempt < 20; attempt++) admitted(breaker, 0).failed(0, attempt > 0)
  admitted(breaker, 0)
})

it("an answer that has begun lets others call, until one more fails", () => {
  const breaker = opened()
  admitted(breaker, 10_000).begun()
  admitted(breaker, 10_000)
  fail(breaker, 10_001)
  assert.isUndefined(breaker.admit(10_002))
})

it("rests for five minutes at most", () => {
  const breaker = opened()
  let now = 0
  for (let trial = 0; trial < 20; trial++) {
    now += 300_000
    fail(breaker, now)
  }
})
