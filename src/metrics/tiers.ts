/** How fine and for how long points are kept, and which of them answer a question. */

export interface Tier {
  readonly table: "metric_raw" | "metric_five_minutes" | "metric_hour"
  /** Between points. */
  readonly stepSeconds: number
  /** Of one row of the table. */
  readonly rowSeconds: number
  readonly keptSeconds: number
}

const hour = 3_600
const day = 24 * hour

export const raw: Tier = { table: "metric_raw", stepSeconds: 15, rowSeconds: hour, keptSeconds: day }
export const fiveMinutes: Tier = {
  table: "metric_five_minutes",
  stepSeconds: 300,
  rowSeconds: hour,
  keptSeconds: 30 * day
}
export const hours: Tier = {
  table: "metric_hour",
  stepSeconds: hour,
  rowSeconds: day,
  keptSeconds: 396 * day
}
const tiers = [raw, fiveMinutes, hours]

/** Points of one series in an answer. */
export const mostPoints = 2_000
const usualPoints = 240
const steps = [15, 30, 60, 300, 900, 1_800, hour, 3 * hour, 6 * hour, day]

export interface Window {
  readonly stepSeconds: number
  readonly tier: Tier
  /** Milliseconds since 1970: the beginning of the first step, and how many steps there are. */
  readonly start: number
  readonly count: number
}

/**
 * The step in force is the one that was asked for, or longer where that would be too many points or finer than what is
 * kept of the time.
 */
export const windowOf = (from: number, to: number, now: number, askedSeconds: number | undefined): Window => {
  const seconds = (to - from) / 1_000
  const kept = tiers.find(({ keptSeconds }) => now - from <= keptSeconds * 1_000) ?? hours
  const least = Math.max(askedSeconds ?? seconds / usualPoints, seconds / (mostPoints - 1), kept.stepSeconds)
  const stepSeconds = steps.find((step) => step >= least) ?? day
  const tier = tiers.findLast((one) => stepSeconds % one.stepSeconds === 0) ?? raw
  const stepMs = stepSeconds * 1_000
  const start = Math.floor(from / stepMs) * stepMs
  return { stepSeconds, tier, start, count: Math.ceil((to - start) / stepMs) }
}
