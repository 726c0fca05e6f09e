/** Handlers of `metrics.*`. */
import * as Clock from "effect/Clock"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import {
  isMeasurement,
  type Measurement,
  measurementNames,
  measurements,
  type Unit
} from "#schemas/signal.ts"
import { answer } from "#src/api/answer.ts"
import { Api } from "#src/api/definition/api.ts"
import type { Fault } from "#src/api/definition/problem.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { fromStore, invalid } from "#src/api/problem.ts"
import { targetRecord } from "#src/api/target.ts"
import { type aggregations, Measurements, MetricSeries } from "./api.ts"
import { MetricHistory } from "./MetricHistory.ts"
import { contentType, openMetrics } from "./openmetrics.ts"
import type { Sums } from "./points.ts"
import { settings, storeLookSeconds } from "./settings.ts"
import { hours, windowOf } from "./tiers.ts"

/** Rows of one export: most resources have one, databases two. */
const mostExported = 5_000
const hourMs = 3_600_000
const longestMs = hours.keptSeconds * 1_000

export const layer = HttpApiBuilder.group(
  Api,
  "metrics",
  Effect.fnUntraced(function* (handlers) {
    const history = yield* MetricHistory
    const { lookSeconds } = yield* settings
    return handlers.handleAll(
      handlersOf(Api.groups.metrics)({
        list: Effect.fnUntraced(function* () {
          const { orgId } = yield* RequestScope
          const { uid } = yield* targetRecord
          const newest = yield* Effect.mapError(history.newest(orgId, uid), fromStore)
          const told = newest.flatMap(({ at, ageSeconds, values }) =>
            Object.entries(values).flatMap(([measurement, value]) =>
              isMeasurement(measurement)
                ? [{ measurement, ...unitOf(measurement), value, at: at.toISOString(), ageSeconds }]
                : []
            )
          )
          const order = (measurement: Measurement) => measurementNames.indexOf(measurement)
          return answer(Measurements, {
            resource: uid,
            history: newest.some(({ kept }) => kept),
            measurements: told.toSorted((a, b) => order(a.measurement) - order(b.measurement))
          })
        }),
        query: Effect.fnUntraced(function* ({ payload }) {
          const { orgId } = yield* RequestScope
          const { uid, kind } = yield* targetRecord
          const now = yield* Clock.currentTimeMillis
          const to = payload.to === undefined ? now : DateTime.toEpochMillis(payload.to)
          const from = payload.from === undefined ? to - hourMs : DateTime.toEpochMillis(payload.from)
          const { aggregation = "avg" } = payload
          const ofKind = measurementNames.filter((name) =>
            measurements[name].kinds.some((one) => one === kind)
          )
          const asked =
            payload.measurements ??
            ofKind.filter(
              (name) => aggregation !== "sum" || rateSeconds(measurements[name].unit) !== undefined
            )
          const faults = [
            ...timeFaults(from, to),
            ...asked.flatMap((name, index): ReadonlyArray<Fault> => {
              const pointer = `/measurements/${index}`
              if (!ofKind.includes(name)) return [{ pointer, message: `is not measured of a ${kind}` }]
              if (aggregation !== "sum" || rateSeconds(measurements[name].unit) !== undefined) return []
              return [{ pointer, message: `has no sum: it is no rate, but ${measurements[name].unit}` }]
            })
          ]
          if (faults.length > 0) return yield* invalid(faults)
          const window = windowOf(from, to, now, payload.stepSeconds)
          const { stepSeconds, start, count } = window
          const points = yield* Effect.mapError(history.points(orgId, uid, window), fromStore)
          return answer(MetricSeries, {
            resource: uid,
            from: new Date(start).toISOString(),
            stepSeconds,
            aggregation,
            series: [...new Set(asked)].map((measurement) => {
              const { unit } = measurements[measurement]
              const perSecond = 1 / (rateSeconds(unit) ?? 1)
              const between = unit === "per_minute" ? storeLookSeconds : lookSeconds
              return {
                measurement,
                unit,
                values: Array.from({ length: count }, (_, step) => {
                  const sums = points.get(start + step * stepSeconds * 1_000)?.get(measurement)
                  return sums === undefined
                    ? null
                    : aggregated(sums, aggregation, Math.min(stepSeconds, sums.count * between) * perSecond)
                })
              }
            })
          })
        }),
        export: Effect.fnUntraced(function* () {
          const { orgId } = yield* RequestScope
          const rows = yield* Effect.mapError(history.all(orgId, mostExported + 1), fromStore)
          return HttpServerResponse.text(
            openMetrics(rows.slice(0, mostExported), rows.length > mostExported),
            { contentType, headers: { "cache-control": "no-store" } }
          )
        })
      })
    )
  })
)

const unitOf = (measurement: Measurement) => {
  const { unit, meaning } = measurements[measurement]
  return { unit, meaning }
}

/** The time that a rate counts in; undefined: it is none. */
const rateSeconds = (unit: Unit): number | undefined =>
  unit === "per_second" || unit === "bytes_per_second" ? 1 : unit === "per_minute" ? 60 : undefined

const timeFaults = (from: number, to: number): ReadonlyArray<Fault> => {
  if (from >= to) return [{ pointer: "/from", message: "must be before `to`" }]
  return to - from > longestMs
    ? [{ pointer: "/from", message: `must be at most ${hours.keptSeconds / 86_400} days before \`to\`` }]
    : []
}

const aggregated = (
  { count, sum, min, max, last }: Sums,
  aggregation: (typeof aggregations)[number],
  /** The time that the samples tell of, in that of the rate: of a gap and of a step that is not over nobody knows. */
  covered: number
): number => {
  const exact = { avg: sum / count, min, max, last, sum: (sum / count) * covered }[aggregation]
  return Math.round(exact * 1_000) / 1_000
}
