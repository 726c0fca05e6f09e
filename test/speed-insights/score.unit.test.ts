import { assert, it } from "@effect/vitest"
import { metrics } from "#src/speed-insights/batch.ts"
import {
  fewestSamples,
  type Measured,
  metricScore,
  ratingOf,
  scales,
  scoreOf
} from "#src/speed-insights/score.ts"

const none: Measured = { samples: 0, p75: null }
const measured = (p75: number, samples = 100): Measured => ({ samples, p75 })
const nothing = { CLS: none, FCP: none, INP: none, LCP: none, TTFB: none }

it("a metric scores 90 at its good threshold and 50 at its poor one, and less for more", () => {
  for (const metric of metrics) {
    const { good, poor } = scales[metric]
    assert.closeTo(metricScore(metric, good), 90, 0.01)
    assert.closeTo(metricScore(metric, poor), 50, 0.01)
    assert.isAbove(metricScore(metric, good / 2), 97)
    assert.isBelow(metricScore(metric, poor * 4), 5)
    assert.strictEqual(metricScore(metric, 0), 100)
  }
})

it("ratings change above their thresholds", () => {
  for (const metric of metrics) {
    const { good, poor } = scales[metric]
    assert.strictEqual(ratingOf(metric, good), "good")
    assert.strictEqual(ratingOf(metric, good * 1.01), "needs-improvement")
    assert.strictEqual(ratingOf(metric, poor), "needs-improvement")
    assert.strictEqual(ratingOf(metric, poor * 1.01), "poor")
  }
})

it("metrics count by their weights, and those with few samples not at all", () => {
  const { LCP, INP, CLS, FCP } = scales
  assert.strictEqual(LCP.weight + INP.weight + CLS.weight + FCP.weight, 100)
  assert.isNull(scoreOf(nothing))
  assert.isNull(scoreOf({ ...nothing, TTFB: measured(10) }))
  assert.isNull(scoreOf({ ...nothing, LCP: measured(2_500, fewestSamples - 1) }))
  assert.strictEqual(scoreOf({ ...nothing, LCP: measured(2_500, fewestSamples) }), 90)
  // 30 of 55 at 90, 25 of 55 at 50.
  assert.strictEqual(scoreOf({ ...nothing, LCP: measured(2_500), CLS: measured(0.25) }), 72)
})
