/** What a stretch of measurements comes to: percentiles and scores of all of it, of each hour or day, and of routes. */
import { type Metric, metrics } from "./batch.ts"
import { type Found, mostRoutesTold, type Wanted } from "./Measurements.ts"
import { hourOf, metricOf, unpack } from "./packed.ts"
import { fewestSamples, type Measured, type Rating, ratingOf, scoreOf } from "./score.ts"
import { bucketOf, type Counts, emptyCounts, quantilesOf, samplesOf } from "./sketch.ts"

export type Granularity = "hour" | "day"
export const hourMs = 3_600_000
const lengthOf: Readonly<Record<Granularity, number>> = { hour: hourMs, day: 24 * hourMs }

export interface Vital {
  readonly metric: Metric
  readonly unit: "milliseconds" | "score"
  /** Null: there are too few samples. */
  readonly rating: Rating | null
  readonly samples: number
  readonly p75: number | null
  readonly p90: number | null
  readonly p95: number | null
  readonly p99: number | null
}

interface Part {
  readonly score: number | null
  readonly samples: number
}
interface Detailed extends Part {
  readonly vitals: ReadonlyArray<Vital>
}

export interface Report {
  readonly summary: Detailed
  /** Every hour or day of the window, also those without samples. */
  readonly series: ReadonlyArray<Part & { readonly bucket: Date }>
  readonly routes: ReadonlyArray<Detailed & { readonly route: string }>
}

/** A set of counts for each metric that has any. */
type Sketches = Map<number, Counts>

const count = (sketches: Sketches, metric: number, bucket: number, samples: number): void => {
  const counts = sketches.get(metric) ?? emptyCounts()
  counts[bucket] = (counts[bucket] ?? 0) + samples
  sketches.set(metric, counts)
}

/** A thousandth is less than what a percentile may be off. */
const rounded = (value: number | null): number | null =>
  value === null ? null : Number(value.toPrecision(4))

const vitalOf = (sketches: Sketches, metric: Metric): Vital => {
  const counts = sketches.get(metrics.indexOf(metric))
  const samples = counts === undefined ? 0 : samplesOf(counts)
  const [p75 = null, p90 = null, p95 = null, p99 = null] =
    counts === undefined ? [] : quantilesOf(counts, [0.75, 0.9, 0.95, 0.99]).map(rounded)
  return {
    metric,
    unit: metric === "CLS" ? "score" : "milliseconds",
    rating: p75 === null || samples < fewestSamples ? null : ratingOf(metric, p75),
    samples,
    p75,
    p90,
    p95,
    p99
  }
}

const detailed = (sketches: Sketches): Detailed => {
  const vitals = metrics.map((metric) => vitalOf(sketches, metric))
  return { ...partOf(vitals), vitals }
}

const partOf = (vitals: ReadonlyArray<Measured & { readonly metric: Metric }>): Part => {
  const of = (metric: Metric): Measured =>
    vitals.find((vital) => vital.metric === metric) ?? { samples: 0, p75: null }
  return {
    score: scoreOf({ CLS: of("CLS"), FCP: of("FCP"), INP: of("INP"), LCP: of("LCP"), TTFB: of("TTFB") }),
    samples: vitals.reduce((sum, { samples }) => sum + samples, 0)
  }
}

/** Only what a score takes, for hundreds of hours. */
const brief = (sketches: Sketches | undefined): Part =>
  partOf(
    metrics.map((metric, index) => {
      const counts = sketches?.get(index)
      const p75 = counts === undefined ? null : (quantilesOf(counts, [0.75])[0] ?? null)
      return { metric, samples: counts === undefined ? 0 : samplesOf(counts), p75 }
    })
  )

/** Routes that may be told of: those of the sums, and as many of what came lately. A sketch of each one would be too much. */
const busiestOf = ({ sums, recent }: Found): ReadonlySet<string> => {
  const samples = new Map<string, number>()
  for (const { routes } of recent)
    for (const route of routes) samples.set(route, (samples.get(route) ?? 0) + 1)
  const lately = [...samples].sort(([, a], [, b]) => b - a).slice(0, mostRoutesTold)
  return new Set([...sums.map(({ route }) => route), ...lately.map(([route]) => route)])
}

/** Takes a day at a time, so that no more than the sketches of 24 hours are unpacked at once. */
export const reportOf = (found: Found, wanted: Wanted, granularity: Granularity): Report => {
  const [from, until] = [wanted.from.getTime(), wanted.until.getTime()]
  const step = lengthOf[granularity]
  const bucketAt = (time: number) => Math.floor(time / step) * step
  const summary: Sketches = new Map()
  const routes = new Map<string, Sketches>()
  const parts = new Map<number, Part>()
  const routeOf = (route: string): Sketches => {
    const sketches = routes.get(route) ?? new Map<number, Counts>()
    if (!routes.has(route)) routes.set(route, sketches)
    return sketches
  }

  const toldRoutes = busiestOf(found)
  /** Of what came lately, by day. */
  const recent = new Map<number, Array<readonly [time: number, metric: number, bucket: number]>>()
  for (const batch of found.recent) {
    for (const [i, time] of batch.at.entries()) {
      const [metric = 0, route = "", device = 0] = [batch.metric[i], batch.routes[i], batch.device[i]]
      if (time < from || time >= until) continue
      if (wanted.device !== undefined && device !== wanted.device) continue
      if (wanted.route !== undefined && route !== wanted.route) continue
      const bucket = bucketOf(batch.value[i] ?? 0)
      const day = dayAt(time)
      const ofDay = recent.get(day) ?? []
      ofDay.push([time, metric, bucket])
      recent.set(day, ofDay)
      if (wanted.route === undefined && toldRoutes.has(route)) count(routeOf(route), metric, bucket, 1)
    }
  }

  const all = found.sums.filter(({ route }) => route === (wanted.route ?? ""))
  // By the time since the day began. Emptied for the next day: new ones would take more memory than all that was found.
  const within = new Map<number, Sketches>()
  for (let day = dayAt(from); day < until; day += lengthOf.day) {
    const add = (time: number, metric: number, bucket: number, samples: number) => {
      if (time < from || time >= until) return
      const at = bucketAt(time) - day
      const sketches = within.get(at) ?? new Map<number, Counts>()
      if (!within.has(at)) within.set(at, sketches)
      count(sketches, metric, bucket, samples)
      count(summary, metric, bucket, samples)
    }
    for (const { day: of, hours } of all) {
      if (of.getTime() !== day || hours === null) continue
      unpack(hours, (slot, bucket, samples) =>
        add(day + hourOf(slot) * hourMs, metricOf(slot), bucket, samples)
      )
    }
    for (const [time, metric, bucket] of recent.get(day) ?? []) add(time, metric, bucket, 1)
    for (const [at, sketches] of within) {
      parts.set(day + at, brief(sketches))
      for (const counts of sketches.values()) counts.fill(0)
    }
  }

  if (wanted.route !== undefined) routes.set(wanted.route, summary)
  else {
    for (const { day, route, hours, total } of found.sums) {
      if (route === "") continue
      const sketches = routeOf(route)
      if (total !== null)
        unpack(total, (slot, bucket, samples) => count(sketches, metricOf(slot), bucket, samples))
      else if (hours !== null)
        unpack(hours, (slot, bucket, samples) => {
          const time = day.getTime() + hourOf(slot) * hourMs
          if (time >= from && time < until) count(sketches, metricOf(slot), bucket, samples)
        })
    }
  }

  const empty = brief(undefined)
  const series: Array<Part & { readonly bucket: Date }> = []
  for (let at = bucketAt(from); at < until; at += step) {
    series.push({ bucket: new Date(at), ...(parts.get(at) ?? empty) })
  }
  return {
    summary: detailed(summary),
    series,
    routes: [...routes]
      .map(([route, sketches]) => ({ route, ...detailed(sketches) }))
      .filter(({ samples }) => samples > 0)
      .sort((a, b) => b.samples - a.samples || (a.route < b.route ? -1 : 1))
      .slice(0, mostRoutesTold)
  }
}

const dayAt = (time: number): number => Math.floor(time / lengthOf.day) * lengthOf.day
