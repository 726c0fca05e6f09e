/** Handlers of `productTelemetry.*`. */
import * as Clock from "effect/Clock"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Layer from "effect/Layer"
import { CurrentRequest } from "#src/access/CurrentRequest.ts"
import { networkOf } from "#src/access/caller-address.ts"
import { RateLimits } from "#src/access/RateLimits.ts"
import { answer } from "#src/api/answer.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { tooMany } from "#src/api/limits.ts"
import { momentFaults } from "#src/api/moments.ts"
import { fromStore, invalid, problem, toResponse } from "#src/api/problem.ts"
import { AppConfig } from "#src/config.ts"
import { aheadMs, Funnel, longestFunnelDays, oldestMs, steps, type TelemetryEvent } from "./api.ts"
import { type Key, networkDigest } from "./digests.ts"
import { settings } from "./settings.ts"
import { TelemetryRecords } from "./TelemetryRecords.ts"

const dayMs = 24 * 3_600_000
const usualFunnelDays = 30

const notConfigured = problem(
  503,
  "telemetry_not_configured",
  "This platform takes no telemetry: its operator has given no key for it"
)

const checkTimes = Effect.fnUntraced(function* (events: ReadonlyArray<TelemetryEvent>, now: number) {
  const faults = events.flatMap(({ at }, index) => {
    const time = DateTime.toEpochMillis(at)
    return time >= now - oldestMs && time <= now + aheadMs
      ? []
      : [{ pointer: `/events/${index}/at`, message: "must be of the last day" }]
  })
  if (faults.length > 0) return yield* invalid(faults)
})

const layerIntake = HttpApiBuilder.group(
  Api,
  "telemetryIntake",
  Effect.fnUntraced(function* (handlers) {
    yield* AppConfig
    const records = yield* TelemetryRecords
    const limits = yield* RateLimits
    const { key, perMinute, networkPerMinute } = yield* settings

    const take = Effect.fnUntraced(function* (bucket: string, most: number) {
      const taken = yield* Effect.mapError(limits.take(`telemetry:${bucket}`, most), fromStore)
      if (!taken.allowed) return yield* tooMany("telemetry", taken)
    })
    /** That of the network first, so that one of them cannot use up everybody's. */
    const takeBudgets = Effect.fnUntraced(function* (withKey: Key, now: number) {
      const { address } = yield* CurrentRequest
      const day = new Date(now).toISOString().slice(0, 10)
      const network = networkDigest(withKey, day, networkOf(address ?? "unknown"))
      yield* take(`network:${network}`, networkPerMinute)
      yield* take("all", perMinute)
    })

    return handlers.handleAll({
      track: ({ payload: { events } }) =>
        Effect.gen(function* () {
          if (key === undefined) return yield* notConfigured
          const now = yield* Clock.currentTimeMillis
          yield* checkTimes(events, now)
          yield* takeBudgets(key, now)
          yield* Effect.mapError(records.add(key, events), fromStore)
          return { accepted: events.length }
        }).pipe(Effect.catchTag("Problem", toResponse))
    })
  })
)

const layerFunnel = HttpApiBuilder.group(
  Api,
  "productTelemetry",
  Effect.fnUntraced(function* (handlers) {
    const records = yield* TelemetryRecords
    return handlers.handleAll(
      handlersOf(Api.groups.productTelemetry)({
        getFunnel: Effect.fnUntraced(function* ({ query }) {
          const { orgId } = yield* RequestScope
          const now = yield* Clock.currentTimeMillis
          const until = query.until === undefined ? now : DateTime.toEpochMillis(query.until)
          const since =
            query.since === undefined ? until - usualFunnelDays * dayMs : DateTime.toEpochMillis(query.since)
          if (since >= until)
            return yield* invalid([{ pointer: "/query/since", message: "must be before the end" }])
          if (until - since > longestFunnelDays * dayMs) {
            const message = `must be at most ${longestFunnelDays} days before the end`
            return yield* invalid([{ pointer: "/query/since", message }])
          }
          const faults = momentFaults({ "/query/since": since, "/query/until": until })
          if (faults.length > 0) return yield* invalid(faults)
          const [from, to] = [new Date(since), new Date(until)]
          const counts = yield* Effect.mapError(records.funnel(orgId, from, to), fromStore)
          return answer(Funnel, {
            since: from.toISOString(),
            until: to.toISOString(),
            steps: counts.map(({ name, count, firstAt, lastAt }) => ({
              name,
              grain: steps[name],
              count,
              firstAt: firstAt?.toISOString() ?? null,
              lastAt: lastAt?.toISOString() ?? null
            }))
          })
        })
      })
    )
  })
)

export const layer = Layer.mergeAll(layerIntake, layerFunnel)
