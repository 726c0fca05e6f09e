import { DDSketch } from "@datadog/sketches-js"
import { assert, it } from "@effect/vitest"
import * as fc from "fast-check"
import { addTo, pack, type Slots, slotOf, unpack, wholeDay } from "#src/speed-insights/packed.ts"
import { bucketOf, buckets, emptyCounts, quantilesOf } from "#src/speed-insights/sketch.ts"

const quantiles = [0.75, 0.9, 0.95, 0.99]
const countsOf = (values: ReadonlyArray<number>) => {
  const counts = emptyCounts()
  for (const value of values) counts[bucketOf(value)]!++
  return counts
}

const value = fc.oneof(fc.constant(0), fc.double({ min: 1e-5, max: 3_600_000, noNaN: true }))
const near = (got: number, exact: number) =>
  assert.isAtMost(Math.abs(got - exact), exact * 0.010_001, `${got} for ${exact}`)

it("percentiles are at most 1 % off the value with the same rank", () => {
  fc.assert(
    fc.property(fc.array(value, { minLength: 1, maxLength: 300 }), (values) => {
      const sorted = values.toSorted((a, b) => a - b)
      for (const [i, found] of quantilesOf(countsOf(values), quantiles).entries()) {
        near(found!, sorted[Math.ceil(quantiles[i]! * values.length) - 1]!)
      }
    })
  )
})

it("percentiles are those of another sketch with the same accuracy, within the accuracy of both", () => {
  const oracle = new DDSketch({ relativeAccuracy: 0.01 })
  // Log-normal, as such measurements are.
  const values = Array.from({ length: 20_000 }, (_, i) => {
    const angle = 2 * Math.PI * ((i * 0.618_033_988_7) % 1)
    return Math.exp(7 + 0.8 * Math.sqrt(-2 * Math.log((i + 1) / 20_001)) * Math.cos(angle))
  })
  for (const one of values) oracle.accept(one)
  for (const [i, found] of quantilesOf(countsOf(values), quantiles).entries()) {
    const other = oracle.getValueAtQuantile(quantiles[i]!)
    assert.isAtMost(Math.abs(found! - other) / other, 0.021)
  }
})

it("nothing has no percentiles, and the largest value has a bucket", () => {
  assert.deepStrictEqual(quantilesOf(emptyCounts(), quantiles), [null, null, null, null])
  assert.isBelow(bucketOf(3_600_000), buckets - 1)
  assert.strictEqual(bucketOf(0), 0)
})

it("what is packed comes out again, and hours add up to their day", () => {
  const entry = fc.record({
    slot: fc.nat({ max: 119 }),
    bucket: fc.nat({ max: buckets - 1 }),
    count: fc.integer({ min: 1, max: 2 ** 33 })
  })
  fc.assert(
    fc.property(fc.array(entry, { maxLength: 200 }), (entries) => {
      const slots: Slots = new Map()
      const day: Slots = new Map()
      for (const { slot, bucket, count } of entries) {
        addTo(slots, slot, bucket, count)
        addTo(day, slot % 5, bucket, count)
      }
      const out: Slots = new Map()
      unpack(pack(slots), (slot, bucket, count) => addTo(out, slot, bucket, count))
      assert.deepStrictEqual(out, slots)
      assert.deepStrictEqual(wholeDay(slots), day)
    })
  )
  assert.strictEqual(slotOf(23, 4), 119)
})
