import { assert, it } from "@effect/vitest"
import { findKind } from "#schemas/index.ts"
import { measurementNames, measurements, signalNames } from "#schemas/signal.ts"

it("every measurement belongs to kinds that there are, and 31 of them are signals", () => {
  assert.lengthOf(signalNames, 31)
  for (const name of measurementNames) {
    const { kinds, meaning, unit, signal, usualThreshold } = measurements[name]
    assert.isAbove(kinds.length, 0, name)
    for (const kind of kinds) assert.isDefined(findKind(kind), name)
    assert.notMatch(meaning, /\.$/, name)
    assert.strictEqual(
      signal,
      signalNames.some((one) => one === name)
    )
    if (signal && unit === "boolean") assert.strictEqual(usualThreshold, 1, name)
  }
})

it("what Postgres cannot tell says so", () => {
  const unavailable = measurementNames.filter((name) => measurements[name].unavailable !== undefined)
  assert.deepStrictEqual(
    unavailable,
    ["p50", "p90", "p95", "p99"].map((share) => `database.query_latency_${share}_ms`)
  )
})
