/** What a browser sends: a few measurements of one page, as one batch. */
import * as Schema from "effect/Schema"
import { EnvironmentSlug } from "#schemas/names.ts"

/** Stored as positions in these lists: they may only grow, at their ends. */
export const metrics = ["CLS", "FCP", "INP", "LCP", "TTFB"] as const
export const devices = ["desktop", "mobile"] as const
export const navigations = ["navigate", "reload", "back-forward", "prerender", "restore", "other"] as const

export type Metric = (typeof metrics)[number]
export type Device = (typeof devices)[number]

/** Encoded bytes. */
export const longestBatch = 32_768
/** How far the time of a measurement may be from that of its arrival: pages are kept in the background for long. */
export const oldestMs = 24 * 3_600_000
export const aheadMs = 5 * 60_000

/** Milliseconds, or the score of a layout shift. */
const largest = (metric: Metric): number => (metric === "CLS" ? 1_000 : 3_600_000)

const isPrintable = (text: string): boolean => text.isWellFormed() && !/\p{Cc}/u.test(text)

/** Normalized by whoever measures: a path without query and fragment, so that it names no visitor. */
export const Route = Schema.String.check(
  Schema.isPattern(/^\/[^?#]*$/u, { expected: "a path without query and fragment" }),
  Schema.isMaxLength(256),
  Schema.makeFilter((text: string) =>
    isPrintable(text) ? undefined : "must be Unicode text without control characters"
  )
).annotate({ identifier: "Route", description: "Path without query and fragment" })

const batchWord = (longest: number) =>
  Schema.String.check(
    Schema.isPattern(/^[A-Za-z0-9_-]+$/u, { expected: "letters, digits, dashes and underscores" }),
    Schema.isMaxLength(longest)
  )

export const SpeedEvent = Schema.Struct({
  eventId: batchWord(100),
  metric: Schema.Literals(metrics),
  value: Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0)).annotate({
    description: "Milliseconds; of CLS the score"
  }),
  timestamp: Schema.String.annotate({ format: "date-time" }).pipe(
    Schema.decodeTo(Schema.DateTimeUtcFromString)
  ),
  route: Route,
  device: Schema.Literals(devices),
  navigationType: Schema.Literals(navigations)
})
  .check(
    Schema.makeFilter(({ metric, value }) =>
      value <= largest(metric)
        ? undefined
        : { path: ["value"], issue: `must not be more than ${largest(metric)}` }
    )
  )
  .annotate({ identifier: "SpeedEvent" })
export type SpeedEvent = typeof SpeedEvent.Type

export const SpeedBatch = Schema.Struct({
  schemaVersion: Schema.Literal(1),
  batchId: batchWord(100).annotate({ description: "A batch that is sent again under its id counts once" }),
  environment: EnvironmentSlug,
  sdkVersion: Schema.String.check(Schema.isMaxLength(50)),
  events: Schema.Array(SpeedEvent).check(
    Schema.isMinLength(1),
    Schema.isMaxLength(200),
    Schema.makeFilter((events: ReadonlyArray<SpeedEvent>) => {
      const seen = new Set<string>()
      const again = events.findIndex(({ eventId }) => seen.size === seen.add(eventId).size)
      return again === -1 ? undefined : { path: [again, "eventId"], issue: "stands twice in the batch" }
    })
  )
}).annotate({ identifier: "SpeedBatch" })
export type SpeedBatch = typeof SpeedBatch.Type
