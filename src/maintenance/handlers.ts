/** Handlers of `maintenance.*`. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { Maintenance, MaintenanceSpec, maintenanceName } from "#schemas/maintenance.ts"
import { looksLikeUid } from "#schemas/names.ts"
import { answer } from "#src/api/answer.ts"
import { Cursors } from "#src/api/cursor.ts"
import { Api } from "#src/api/definition/api.ts"
import { defaultPageSize } from "#src/api/definition/fields.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { fromStore, notFound } from "#src/api/problem.ts"
import { projectSingleton } from "#src/api/project-singleton.ts"
import { serviceStatus } from "#src/api/views.ts"
import { remove } from "#src/api/writing.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import { Actions } from "./Actions.ts"
import { MaintenanceFindingPage, MaintenanceRunPage, MaintenanceRunView, MaintenanceView } from "./api.ts"
import { Findings } from "./Findings.ts"
import { type RunRecord, Runs } from "./Runs.ts"
import { type InForce, type Ref, Schedules } from "./Schedules.ts"
import { findingView, runView } from "./views.ts"

const complete = Schema.decodeUnknownEffect(MaintenanceSpec)

/** The run that was open may end while one is asked for. */
const asks = 3

const maintenanceView = (
  spec: MaintenanceSpec,
  record: ResourceRecord | undefined,
  inForce: InForce | undefined,
  openFindings: number
) => ({
  ...spec,
  enabled: record !== undefined && spec.enabled,
  status: record === undefined ? null : serviceStatus(record),
  nextRunAt: inForce?.nextAt?.toISOString() ?? null,
  openFindings,
  managedBy: record?.managedBy ?? null
})

const nothing = notFound("maintenance in this project; set it up first")
const noRun = notFound("run of this maintenance")
const noFinding = notFound("finding of this maintenance")

export const layer = HttpApiBuilder.group(
  Api,
  "maintenance",
  Effect.fnUntraced(function* (handlers) {
    const schedules = yield* Schedules
    const runs = yield* Runs
    const findings = yield* Findings
    const actions = yield* Actions
    const cursors = yield* Cursors

    const { current, set } = yield* projectSingleton(Maintenance, maintenanceName)
    const ref = Effect.map(current, (record): Ref | undefined => record)

    const shown = Effect.gen(function* () {
      const record = yield* current
      const spec = yield* Effect.orDie(complete(record?.spec ?? {}))
      if (record === undefined) return answer(MaintenanceView, maintenanceView(spec, undefined, undefined, 0))
      const [inForce, open] = yield* Effect.mapError(
        Effect.all([schedules.inForce(record), findings.countOpen(record)], { concurrency: 2 }),
        fromStore
      )
      return answer(
        MaintenanceView,
        maintenanceView(spec, record, Option.getOrUndefined(inForce), open),
        record
      )
    })

    const withActions = Effect.fnUntraced(function* (orgId: string, records: ReadonlyArray<RunRecord>) {
      const ids = records.map(({ id }) => id)
      const done = yield* Effect.mapError(actions.ofRuns(orgId, ids), fromStore)
      return records.map((run) => runView(run, done))
    })

    const changedFinding = Effect.fnUntraced(function* (findingId: string, reason: string | undefined) {
      const { caller } = yield* RequestScope
      const maintenance = yield* ref
      if (maintenance === undefined || !looksLikeUid(findingId)) return yield* noFinding
      const change =
        reason === undefined
          ? findings.reopen(maintenance, findingId, caller.actor)
          : findings.dismiss(maintenance, findingId, reason, caller.actor)
      const changed = yield* Effect.mapError(change, fromStore)
      return Option.isSome(changed) ? findingView(changed.value) : yield* noFinding
    })

    return handlers.handleAll(
      handlersOf(Api.groups.maintenance)({
        get: () => shown,
        set: Effect.fnUntraced(function* ({ payload }) {
          yield* set(yield* Effect.orDie(complete(payload)))
          return yield* shown
        }),
        delete: Effect.fnUntraced(function* () {
          const record = yield* current
          return record === undefined ? yield* nothing : yield* remove(record)
        }),
        listRuns: Effect.fnUntraced(function* ({ query }) {
          const { orgId } = yield* RequestScope
          const maintenance = yield* ref
          if (maintenance === undefined) return answer(MaintenanceRunPage, { items: [], nextCursor: null })
          const limit = query.limit ?? defaultPageSize
          const list = `maintenance runs ${maintenance.uid}`
          const [createdAt, id] = (yield* cursors.decode(list, query.cursor)) ?? []
          const before = createdAt === undefined || id === undefined ? undefined : { createdAt, id }
          const found = yield* Effect.mapError(runs.list(maintenance, limit + 1, before), fromStore)
          const { items, nextCursor } = cursors.page(list, found, limit, (last) => [
            last.createdAt.toISOString(),
            last.id
          ])
          return answer(MaintenanceRunPage, {
            items: yield* withActions(orgId, items),
            nextCursor
          })
        }),
        run: Effect.fnUntraced(function* () {
          const { orgId, caller, reservation } = yield* RequestScope
          const actor = { ...caller.actor, outcome: 202 }
          for (let ask = 0; ask < asks; ask++) {
            const maintenance = yield* ref
            if (maintenance === undefined) return yield* nothing
            const asked = yield* Effect.mapError(runs.ask(maintenance, reservation.uid, actor), fromStore)
            if (Option.isNone(asked)) continue
            const [view] = yield* withActions(orgId, [asked.value])
            if (view !== undefined) return view
          }
          return yield* nothing
        }),
        getRun: Effect.fnUntraced(function* ({ params: { runId } }) {
          const { orgId } = yield* RequestScope
          const maintenance = yield* ref
          if (maintenance === undefined || !looksLikeUid(runId)) return yield* noRun
          const found = yield* Effect.mapError(runs.get(maintenance, runId), fromStore)
          const [view] = yield* withActions(orgId, Option.toArray(found))
          return view === undefined ? yield* noRun : answer(MaintenanceRunView, view)
        }),
        listFindings: Effect.fnUntraced(function* ({
          query: { limit = defaultPageSize, cursor, ...filter }
        }) {
          const maintenance = yield* ref
          if (maintenance === undefined)
            return answer(MaintenanceFindingPage, { items: [], nextCursor: null })
          const list = `maintenance findings ${maintenance.uid} ${filter.state ?? ""} ${filter.category ?? ""}`
          const [firstSeenAt, id] = (yield* cursors.decode(list, cursor)) ?? []
          const before = firstSeenAt === undefined || id === undefined ? undefined : { firstSeenAt, id }
          const found = yield* Effect.mapError(
            findings.list(maintenance, filter, limit + 1, before),
            fromStore
          )
          const { items, nextCursor } = cursors.page(list, found, limit, (last) => [
            last.firstSeenAt.toISOString(),
            last.id
          ])
          return answer(MaintenanceFindingPage, {
            items: items.map(findingView),
            nextCursor
          })
        }),
        dismiss: ({ params: { findingId }, payload: { reason } }) => changedFinding(findingId, reason),
        reopen: ({ params: { findingId } }) => changedFinding(findingId, undefined)
      })
    )
  })
)
