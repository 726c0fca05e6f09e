import { assert, describe, it } from "@effect/vitest"
import { makeGaps } from "#src/edge/requests/gaps.ts"
import { makeTally } from "#src/edge/requests/tally.ts"
import { logged, noon } from "./logged.ts"

describe("a tally of requests", () => {
  it("sums by environment, minute and class, and keeps what came in its order", () => {
    const tally = makeTally()
    assert.isUndefined(tally.take())
    tally.add(logged("a"), noon + 10_000)
    tally.add(logged("a", { status: 204, durationMs: 10, path: "/second" }), noon + 20_000)
    tally.add(logged("a", { status: 503, durationMs: 60_000 }), noon + 59_999)
    tally.add(logged("a", { status: null }), noon + 60_000)
    tally.add(logged("b", { status: 101 }), noon)
    const batch = tally.take()
    assert.deepStrictEqual(
      batch?.requests.map(({ environment, at, path, status }) => [environment, at - noon, path, status]),
      [
        ["a", 9_970, "/", 200],
        ["a", 19_990, "/second", 204],
        ["a", -1, "/", 503],
        ["a", 59_970, "/", null],
        ["b", -30, "/", 101]
      ]
    )
    const { minutes = [], lost } = batch ?? {}
    assert.strictEqual(lost, 0)
    assert.deepStrictEqual(
      minutes.map((of) => [of.environment, of.minute - noon, of.statusClass, of.requests]),
      [
        ["a", 0, 2, 2],
        ["a", 0, 5, 1],
        ["a", 60_000, 0, 1],
        ["b", 0, 1, 1]
      ]
    )
    const [good, bad] = minutes
    assert.deepInclude(good, { bytesIn: 200, bytesOut: 2000, durationMs: 40 })
    assert.deepStrictEqual(good?.durations, [1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0])
    assert.deepStrictEqual(bad?.durations, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])
    assert.isUndefined(tally.take())
  })

  it("keeps the newest of more requests than it has room for, and counts all", () => {
    const tally = makeTally({ perEnvironment: 3, requests: 4, sums: 2 })
    for (let index = 0; index < 100; index++) tally.add(logged("a", { path: `/${index}` }), noon)
    for (let index = 0; index < 5; index++) tally.add(logged("b", { path: `/${index}` }), noon)
    for (let index = 0; index < 7; index++) tally.add(logged("c"), noon)
    const batch = tally.take()
    assert.deepStrictEqual(
      batch?.requests.map(({ environment, path }) => environment + path),
      ["a/97", "a/98", "a/99", "b/0"]
    )
    assert.deepStrictEqual(
      batch?.minutes.map(({ requests }) => requests),
      [100, 5]
    )
    assert.strictEqual(batch?.lost, 7)
    tally.add(logged("c"), noon)
    assert.deepInclude(tally.take(), { lost: 0 })
  })
})

describe("numbered lines", () => {
  it("that did not arrive are counted once, and those that overtook each other are not", () => {
    const gaps = makeGaps()
    for (const number of [7, 8, 10]) gaps.arrived("tls-1", number)
    for (const number of [1, 2]) gaps.arrived("tls-2", number)
    assert.strictEqual(gaps.round(), 0)
    gaps.arrived("tls-1", 9)
    assert.strictEqual(gaps.round(), 0)
    for (const number of [11, 15]) gaps.arrived("tls-1", number)
    assert.strictEqual(gaps.round(), 0)
    assert.strictEqual(gaps.round(), 3)
    assert.strictEqual(gaps.round(), 0)
  })
})
