import { assert, it } from "@effect/vitest"
import { type Breaker, makeBreaker } from "#src/ai-gateways/runtime/breaker.ts"

const org = "org"
const admitted = (breaker: Breaker, now: number, orgId = org) =>
  breaker.admit(orgId, now) ?? assert.fail(`no call may be made at ${now}`)
/** Whatever the call was. */
const fail = (breaker: Breaker, now: number) => admitted(breaker, now).failed(now, "upstream", false)
/** Maybe because of the call. */
const provoke = (breaker: Breaker, now: number, orgId: string) =>
  admitted(breaker, now, orgId).failed(now, "call", false)
const opened = () => {
  const breaker = makeBreaker()
  for (let failure = 0; failure < 5; failure++) fail(breaker, 0)
  return breaker
}

it("opens after five failures in a row, and lets one call try after ten seconds", () => {
  const breaker = opened()
  assert.isTrue(breaker.isOpen(9_999))
  assert.isUndefined(breaker.admit(org, 9_999))
  const trial = admitted(breaker, 10_000)
  assert.isUndefined(breaker.admit(org, 10_000))
  trial.failed(10_000, "upstream", false)
  assert.isUndefined(breaker.admit(org, 29_999))
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
  earlier.failed(10_000, "upstream", false)
  assert.isUndefined(breaker.admit(org, 10_000))
  trial.ended()
  admitted(breaker, 10_000)
})

it("tries of the same call count once", () => {
  const breaker = makeBreaker()
  for (const fault of ["upstream", "call"] as const) {
    for (let attempt = 0; attempt < 20; attempt++) admitted(breaker, 0).failed(0, fault, attempt > 0)
  }
  admitted(breaker, 0)
})

it("an answer that has begun lets others call, until one more fails", () => {
  const breaker = opened()
  admitted(breaker, 10_000).begun()
  admitted(breaker, 10_000)
  fail(breaker, 10_001)
  assert.isUndefined(breaker.admit(org, 10_002))
})

it("rests for five minutes at most", () => {
  const breaker = opened()
  let now = 0
  for (let trial = 0; trial < 20; trial++) {
    now += 300_000
    fail(breaker, now)
  }
})

it("what a call may have provoked closes the upstream to its organization only", () => {
  const breaker = makeBreaker()
  for (let failure = 0; failure < 5; failure++) provoke(breaker, 0, "a")
  assert.isUndefined(breaker.admit("a", 0))
  assert.deepStrictEqual(
    [breaker.isOpen(0), breaker.isOpen(0, "a"), breaker.isOpen(0, "b")],
    [false, true, false]
  )
  admitted(breaker, 0, "b").succeeded()
  // Its own trials fail for twice as long each time, and nobody else notices.
  provoke(breaker, 10_000, "a")
  assert.isUndefined(breaker.admit("a", 29_999))
  admitted(breaker, 29_999, "b")
  admitted(breaker, 30_000, "a").succeeded()
  admitted(breaker, 30_000, "a")
  assert.isFalse(breaker.isOpen(30_000, "a"))
})

it("what five organizations meet in a row closes it to all", () => {
  const breaker = makeBreaker()
  for (const orgId of ["a", "b", "a", "c", "b", "d"]) provoke(breaker, 0, orgId)
  admitted(breaker, 0, "e").succeeded()
  for (const orgId of ["a", "b", "c", "d"]) provoke(breaker, 0, orgId)
  admitted(breaker, 0, "f")
  provoke(breaker, 0, "e")
  assert.isTrue(breaker.isOpen(0))
  assert.isUndefined(breaker.admit("f", 9_999))
})

it("whoever helped to close it cannot keep it closed by failing trials", () => {
  const breaker = makeBreaker()
  for (const orgId of ["a", "b", "c", "d", "e"]) provoke(breaker, 0, orgId)
  for (let trial = 0; trial < 3; trial++) provoke(breaker, 10_000, "a")
  admitted(breaker, 10_000, "f").succeeded()
  admitted(breaker, 10_000, "g")
})
