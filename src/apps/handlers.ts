/** Handlers of `apps.*`. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { App, AppSpec, appName } from "#schemas/app.ts"
import { answer } from "#src/api/answer.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { fromStore, notFound } from "#src/api/problem.ts"
import { targetEnvironment } from "#src/api/target.ts"
import { serviceStatus } from "#src/api/views.ts"
import { amend } from "#src/api/writing.ts"
import { makeLogHandler } from "#src/container-logs/log-handler.ts"
import { reservedAt } from "#src/store/Reservation.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import { AppLogs } from "./AppLogs.ts"
import { Apps } from "./Apps.ts"
import { AppInstanceList, AppView } from "./api.ts"
import type { AppRow, Instance } from "./app-state.ts"
import { makeExec } from "./exec-handler.ts"

const decode = Schema.decodeUnknownEffect(AppSpec)
const storedSpec = Schema.decodeUnknownSync(AppSpec)
/** Of an app, also ended ones. */
const shownInstances = 50

export const layer = HttpApiBuilder.group(
  Api,
  "apps",
  Effect.fnUntraced(function* (handlers) {
    const resources = yield* Resources
    const apps = yield* Apps
    const logs = yield* AppLogs
    const showLog = yield* makeLogHandler
    const exec = yield* makeExec

    const current = Effect.gen(function* () {
      const { orgId } = yield* RequestScope
      const { projectId, environment } = yield* targetEnvironment
      const found = yield* Effect.mapError(
        resources.find(orgId, App.name, projectId, environment, appName),
        fromStore
      )
      if (Option.isNone(found) || found.value.deletionRequestedAt !== null)
        return yield* notFound("app: nothing was deployed to this environment")
      return found.value
    })

    const viewOf = Effect.fnUntraced(function* (record: ResourceRecord) {
      const row = yield* Effect.mapError(apps.row(record.orgId, record.uid), fromStore)
      return appView(record, Option.getOrUndefined(row))
    })
    const shown = (record: ResourceRecord) =>
      Effect.map(viewOf(record), (view) => answer(AppView, view, record))

    const instancesOf = ({ orgId, uid }: ResourceRecord) =>
      Effect.mapError(apps.instances(orgId, uid, shownInstances), fromStore)

    return handlers.handleAll(
      handlersOf(Api.groups.apps)({
        get: () => Effect.flatMap(current, shown),
        update: Effect.fnUntraced(function* ({ payload }) {
          const { healthCheck, idle, ...plain } = payload
          const record = yield* amend(
            yield* current,
            Effect.fnUntraced(function* (base) {
              const spec = yield* Effect.orDie(decode(base.spec))
              const next = {
                ...spec,
                ...plain,
                healthCheck: { ...spec.healthCheck, ...healthCheck },
                idle: { ...spec.idle, ...idle }
              }
              return { spec: next }
            })
          )
          return yield* shown(record)
        }),
        instances: Effect.fnUntraced(function* () {
          const found = yield* instancesOf(yield* current)
          return answer(AppInstanceList, found.map(instanceView))
        }),
        logs: Effect.fnUntraced(function* (request) {
          const record = yield* current
          const found = yield* instancesOf(record)
          const { instance: asked } = request.query
          const instance = asked === undefined ? found[0] : found.find(({ uid }) => uid === asked)
          if (instance === undefined) return yield* notFound("instance of this app")
          const again = Effect.flatMap(instancesOf(record), (now) => {
            const one = now.find(({ uid }) => uid === instance.uid)
            return one === undefined ? notFound("instance") : Effect.succeed(instanceView(one))
          })
          return yield* showLog(request, { orgId: record.orgId, uid: instance.uid }, logs.read, again)
        }),
        exec: ({ payload }) => Effect.flatMap(current, (app) => exec(app, payload)),
        restart: Effect.fnUntraced(function* () {
          const { reservation } = yield* RequestScope
          const found = yield* current
          // An earlier try of this request has done it.
          if (reservation.again && found.updatedAt >= reservedAt(reservation)) return yield* viewOf(found)
          const record = yield* amend(
            found,
            Effect.fnUntraced(function* (base) {
              const spec = yield* Effect.orDie(decode(base.spec))
              return { spec: { ...spec, restarts: spec.restarts + 1 } }
            })
          )
          return yield* viewOf(record)
        })
      })
    )
  })
)

const appView = (record: ResourceRecord, row: AppRow | undefined) => {
  const { deployment, chosenAt: _chosen, restarts: _restarts, ...spec } = storedSpec(record.spec)
  return {
    id: record.uid,
    environment: record.environment ?? "",
    status: serviceStatus(record),
    power: row?.power ?? ("awake" as const),
    ...spec,
    deploymentId: row?.servingDeployment ?? null,
    chosenDeploymentId: deployment ?? null,
    lastFailure: row?.rejectedError ?? null,
    createdAt: record.createdAt.toISOString(),
    updatedAt: record.updatedAt.toISOString()
  }
}

const instanceView = ({
  uid,
  deployment,
  state,
  startedAt,
  healthyAt,
  endedAt,
  exitCode,
  exitReason
}: Instance) => ({
  id: uid,
  deploymentId: deployment,
  state,
  startedAt: startedAt?.toISOString() ?? null,
  healthyAt: healthyAt?.toISOString() ?? null,
  endedAt: endedAt?.toISOString() ?? null,
  exitCode,
  exitReason
})
