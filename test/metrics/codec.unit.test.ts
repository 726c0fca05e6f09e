import { assert, it } from "@effect/vitest"
import * as fc from "fast-check"
import { decode, encode, type Table } from "#src/metrics/codec.ts"
import { add, addTable, coarser, ofSample, type Points, toTable } from "#src/metrics/points.ts"
import { fiveMinutes, hours, mostPoints, raw, windowOf } from "#src/metrics/tiers.ts"

const second = 1_000
const hour = 3_600 * second
const noon = Date.parse("2026-11-22T12:00:00Z")

it("what was packed comes back as it was: any numbers, gaps, none at all", () => {
  const value = fc.option(
    fc.oneof(
      fc.double({ noNaN: true, noDefaultInfinity: true }),
      fc.integer().map((n) => n / 1_000),
      fc.maxSafeInteger(),
      fc.constant(-0)
    ),
    { nil: undefined }
  )
  fc.assert(
    fc.property(fc.array(fc.tuple(value, value), { maxLength: 50 }), (rows) => {
      const table: Table = {
        times: rows.map((_, index) => noon + index * 15 * second),
        columns: new Map([
          ["a", rows.map(([a]) => a)],
          ["b", rows.map(([, b]) => b)]
        ])
      }
      const again: Table = decode(encode(table)) ?? { times: [], columns: new Map() }
      assert.deepStrictEqual(again.times, table.times)
      // Zero has no sign here.
      for (const name of ["a", "b"]) {
        assert.deepStrictEqual(
          again.columns.get(name)?.map((one) => (one === 0 ? 0 : one)),
          table.columns.get(name)?.map((one) => (one === 0 ? 0 : one))
        )
      }
    })
  )
})

it("bytes that are none of a table are told from it", () => {
  const bytes = encode({ times: [noon], columns: new Map([["a", [1]]]) })
  assert.isDefined(decode(bytes))
  for (const at of [0, 1, bytes.length - 1]) {
    assert.isUndefined(decode(Uint8Array.from(bytes, (byte, index) => (index === at ? byte ^ 0xff : byte))))
  }
  assert.isUndefined(decode(bytes.subarray(0, bytes.length / 2)))
  assert.isUndefined(decode(new Uint8Array()))
})

it("sums over a longer time are those of the samples, also when they are made in steps and in another order", () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: -1_000, max: 1_000 }), { minLength: 1, maxLength: 300 }),
      (values) => {
        const points: Points = new Map()
        for (const [index, value] of [...values.entries()].reverse()) {
          add(points, noon + index * 15 * second, "x", ofSample(value))
        }
        const minutes: Points = new Map()
        addTable(minutes, decode(encode(toTable(coarser(points, 300 * second), false))))
        for (const result of [coarser(points, 24 * hour), coarser(coarser(minutes, hour), 24 * hour)]) {
          assert.deepStrictEqual(
            [...result.values()].flatMap((point) => [...point.values()]),
            [
              {
                count: values.length,
                sum: values.reduce((a, b) => a + b, 0),
                min: Math.min(...values),
                max: Math.max(...values),
                last: values.at(-1) ?? 0
              }
            ]
          )
        }
      }
    )
  )
})

it("the step is as fine as was asked for, as is kept of the time, and as an answer may have points", () => {
  const ago = (ms: number, asked?: number) => windowOf(noon - ms, noon, noon, asked)
  assert.deepInclude(ago(hour), { stepSeconds: 15, tier: raw, count: 240 })
  assert.deepInclude(ago(hour, 61), { stepSeconds: 300, tier: fiveMinutes, count: 12 })
  assert.deepInclude(ago(24 * hour, 15), { stepSeconds: 60, tier: raw })
  assert.deepInclude(ago(25 * hour, 15), { stepSeconds: 300, tier: fiveMinutes })
  assert.deepInclude(ago(31 * 24 * hour, 15), { stepSeconds: 3_600, tier: hours })
  assert.deepInclude(ago(365 * 24 * hour, 15), { stepSeconds: 6 * 3_600, tier: hours })
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 396 * 24 * hour }),
      fc.integer({ min: 1, max: 86_400 }),
      (ms, asked) => {
        const { start, count, stepSeconds, tier } = ago(ms, asked)
        assert.isAtMost(count, mostPoints)
        assert.isAtMost(start, noon - ms)
        assert.isAtLeast(start + count * stepSeconds * second, noon)
        assert.strictEqual(stepSeconds % tier.stepSeconds, 0)
        assert.isAtMost(ms, tier.keptSeconds * second)
      }
    )
  )
})
