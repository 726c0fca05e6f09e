/** Handlers of `speedInsights.*`. */
import * as Clock from "effect/Clock"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import { Environment } from "#schemas/environment.ts"
import { defaultEnvironment } from "#schemas/names.ts"
import { answer } from "#src/api/answer.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { momentFaults } from "#src/api/moments.ts"
import { fromStore, invalid, notFound } from "#src/api/problem.ts"
import { targetProject } from "#src/api/target.ts"
import { Resources } from "#src/store/Resources.ts"
import { retentionDays, SpeedConfig, SpeedReport } from "./api.ts"
import { devices } from "./batch.ts"
import { Measurements } from "./Measurements.ts"
import { hourMs, reportOf } from "./report.ts"
import { type Configured, SpeedProjects } from "./SpeedProjects.ts"

const dayMs = 24 * hourMs
const usualWindowMs = 7 * dayMs
/** Hours make a good picture of so long a window. */
const longestByHourMs = 2 * dayMs

export const layer = HttpApiBuilder.group(
  Api,
  "speedInsights",
  Effect.fnUntraced(function* (handlers) {
    const projects = yield* SpeedProjects
    const measurements = yield* Measurements
    const resources = yield* Resources

    const view = (configured: Configured): (typeof SpeedConfig)["Encoded"] => ({
      enabled: configured.enabled,
      projectRef: configured.projectRef,
      endpoint: projects.endpointOf(configured.projectRef),
      sampleRate: configured.sampleRate,
      allowedOrigins: configured.allowedOrigins,
      retentionDays
    })

    const environmentOf = Effect.fnUntraced(function* (slug: string) {
      const { orgId } = yield* RequestScope
      const { projectId } = yield* targetProject
      const all = yield* Effect.mapError(resources.listKind(orgId, Environment.name, projectId), fromStore)
      const found = all.find(({ name, deletionRequestedAt }) => name === slug && deletionRequestedAt === null)
      return found ?? (yield* notFound("environment in this project"))
    })

    return handlers.handleAll(
      handlersOf(Api.groups.speedInsights)({
        get: Effect.fnUntraced(function* () {
          const { orgId } = yield* RequestScope
          const { projectId } = yield* targetProject
          return answer(SpeedConfig, view(yield* Effect.mapError(projects.get(orgId, projectId), fromStore)))
        }),
        update: Effect.fnUntraced(function* ({ payload }) {
          const { orgId, caller } = yield* RequestScope
          const { projectId } = yield* targetProject
          const set = projects.set(orgId, projectId, payload, caller.actor)
          return answer(SpeedConfig, view(yield* Effect.mapError(set, fromStore)))
        }),
        query: Effect.fnUntraced(function* ({ payload }) {
          const { orgId } = yield* RequestScope
          const { projectId } = yield* targetProject
          const now = yield* Clock.currentTimeMillis
          const until = payload.until === undefined ? now : DateTime.toEpochMillis(payload.until)
          const from =
            payload.from === undefined ? until - usualWindowMs : DateTime.toEpochMillis(payload.from)
          if (from >= until) return yield* invalid([{ pointer: "/from", message: "must be before the end" }])
          if (until - from > retentionDays * dayMs) {
            const message = `must be at most ${retentionDays} days before the end: nothing older is kept`
            return yield* invalid([{ pointer: "/from", message }])
          }
          const [fromHour, untilHour] = [
            Math.floor(from / hourMs) * hourMs,
            Math.ceil(until / hourMs) * hourMs
          ]
          const faults = momentFaults({ "/from": fromHour, "/until": untilHour })
          if (faults.length > 0) return yield* invalid(faults)
          const granularity = payload.granularity ?? (until - from <= longestByHourMs ? "hour" : "day")
          const environment = yield* environmentOf(payload.environment ?? defaultEnvironment)
          const { device = "all", route } = payload
          const wanted = {
            orgId,
            projectId,
            environmentUid: environment.uid,
            from: new Date(fromHour),
            until: new Date(untilHour),
            device: device === "all" ? undefined : devices.indexOf(device),
            route
          }
          const found = yield* Effect.mapError(measurements.find(wanted), fromStore)
          const report = reportOf(found, wanted, granularity)
          return answer(SpeedReport, {
            from: wanted.from.toISOString(),
            until: wanted.until.toISOString(),
            retentionDays,
            ...report,
            series: report.series.map(({ bucket, ...rest }) => ({ bucket: bucket.toISOString(), ...rest }))
          })
        })
      })
    )
  })
)
