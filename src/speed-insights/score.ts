/**
 * What a page's measurements are worth.
 *
 * - Thresholds of good and poor: web.dev, "Web Vitals" and the pages of each metric, for the 75th percentile.
 * - Score of a metric: the log-normal curve of Lighthouse ("Lighthouse performance scoring", developer.chrome.com;
 *   `shared/statistics.js`), 90 at the good threshold and 50 at the poor one. Lighthouse states the same control points, `p10`
 *   and `median`, in `core/audits/metrics/` for CLS and INP, and for LCP and FCP on mobile devices.
 * - Weights: this product's choice. No source is known that states weights for measurements of visitors; those of Lighthouse
 *   are for a laboratory, where nobody interacts. TTFB has none: it is part of FCP and LCP.
 */
import { type Metric, metrics } from "./batch.ts"

interface Scale {
  /** Up to this it is good. */
  readonly good: number
  /** Above this it is poor. */
  readonly poor: number
  readonly weight: number
}

export const scales: Readonly<Record<Metric, Scale>> = {
  LCP: { good: 2_500, poor: 4_000, weight: 30 },
  INP: { good: 200, poor: 500, weight: 30 },
  CLS: { good: 0.1, poor: 0.25, weight: 25 },
  FCP: { good: 1_800, poor: 3_000, weight: 15 },
  TTFB: { good: 800, poor: 1_800, weight: 0 }
}

/** Of a metric with fewer samples there is neither a rating nor a part in a score: a few visitors say little. */
export const fewestSamples = 10

export const ratings = ["good", "needs-improvement", "poor"] as const
export type Rating = (typeof ratings)[number]

export const ratingOf = (metric: Metric, p75: number): Rating => {
  const { good, poor } = scales[metric]
  return p75 <= good ? "good" : p75 <= poor ? "needs-improvement" : "poor"
}

/** Abramowitz and Stegun, "Handbook of Mathematical Functions", 7.1.26: at most 1.5e-7 off. */
const erf = (x: number): number => {
  const t = 1 / (1 + 0.3275911 * Math.abs(x))
  const polynomial =
    t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
  return Math.sign(x) * (1 - polynomial * Math.exp(-x * x))
}

/** The inverse of the complementary error function at 1/5, which puts the good threshold at 90. */
const inverseErfcOfOneFifth = 0.9061938024368232

/** 0 to 100, not rounded. */
export const metricScore = (metric: Metric, p75: number): number => {
  if (p75 <= 0) return 100
  const { good, poor } = scales[metric]
  return 50 * (1 - erf((inverseErfcOfOneFifth * Math.log(p75 / poor)) / Math.log(poor / good)))
}

export interface Measured {
  readonly samples: number
  readonly p75: number | null
}

/** 0 to 100. Metrics with too few samples do not count, and the others are weighed without them; null: none counts. */
export const scoreOf = (measured: Readonly<Record<Metric, Measured>>): number | null => {
  let sum = 0
  let weights = 0
  for (const metric of metrics) {
    const { samples, p75 } = measured[metric]
    if (p75 === null || samples < fewestSamples) continue
    sum += scales[metric].weight * metricScore(metric, p75)
    weights += scales[metric].weight
  }
  return weights === 0 ? null : Math.round(sum / weights)
}
