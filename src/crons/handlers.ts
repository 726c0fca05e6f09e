/** Handlers of `crons.*`. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { Cron, CronSpec } from "#schemas/cron.ts"
import { nextRun } from "#schemas/cron-schedule.ts"
import { looksLikeUid } from "#schemas/names.ts"
import { answer } from "#src/api/answer.ts"
import { Cursors } from "#src/api/cursor.ts"
import { Api } from "#src/api/definition/api.ts"
import { defaultPageSize } from "#src/api/definition/fields.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { fromStore, notFound, problem } from "#src/api/problem.ts"
import { resourceHandlers } from "#src/api/resource-handlers.ts"
import { targetRecord } from "#src/api/target.ts"
import type { ListedRecord } from "#src/store/records.ts"
import { CronRunPage, CronRunView, CronView } from "./api.ts"
import { Crons } from "./Crons.ts"
import type { RunRecord } from "./run.ts"

const storedSpec = Schema.decodeUnknownSync(CronSpec)

export const layer = HttpApiBuilder.group(
  Api,
  "crons",
  Effect.fnUntraced(function* (handlers) {
    const runs = yield* Crons
    const cursors = yield* Cursors
    const crons = yield* resourceHandlers(Cron, {
      view: CronView,
      viewer: Effect.fnUntraced(function* (records) {
        const [first] = records
        const uids = records.map(({ uid }) => uid)
        const last =
          first === undefined
            ? new Map<string, Date>()
            : yield* Effect.mapError(runs.lastRuns(first.orgId, uids), fromStore)
        const now = yield* Clock.currentTimeMillis
        return (record) => cronView(record, last.get(record.uid), now)
      })
    })

    return handlers.handleAll(
      handlersOf(Api.groups.crons)({
        list: crons.list,
        create: crons.create(({ payload: { name, ...spec } }) => Effect.succeed({ name, spec })),
        get: crons.get,
        update: crons.update(({ payload }) =>
          Effect.succeed((current) => ({
            ...current,
            ...payload,
            retry: { ...current.retry, ...payload.retry }
          }))
        ),
        delete: crons.delete(),
        trigger: Effect.fnUntraced(function* () {
          const { orgId, caller, reservation } = yield* RequestScope
          const { uid, name } = yield* targetRecord
          const made = yield* Effect.mapError(
            runs.trigger({ orgId, uid }, reservation.uid, { ...caller.actor, outcome: 202 }),
            fromStore
          )
          return Option.isSome(made)
            ? runView(made.value)
            : yield* problem(409, "being_deleted", `Cron "${name}" is being deleted`)
        }),
        listRuns: Effect.fnUntraced(function* ({ query }) {
          const { orgId } = yield* RequestScope
          const { uid } = yield* targetRecord
          const limit = query.limit ?? defaultPageSize
          const list = `runs ${uid}`
          const [scheduledAt, id] = (yield* cursors.decode(list, query.cursor)) ?? []
          const before = scheduledAt === undefined || id === undefined ? undefined : { scheduledAt, id }
          const found = yield* Effect.mapError(runs.runs({ orgId, uid }, limit + 1, before), fromStore)
          const { items, nextCursor } = cursors.page(list, found, limit, (last) => [
            last.scheduledAt.toISOString(),
            last.id
          ])
          return answer(CronRunPage, {
            items: items.map(runView),
            nextCursor
          })
        }),
        getRun: Effect.fnUntraced(function* ({ params }) {
          const { orgId } = yield* RequestScope
          const { uid } = yield* targetRecord
          const found = looksLikeUid(params.runId)
            ? yield* Effect.mapError(runs.run({ orgId, uid }, params.runId), fromStore)
            : Option.none()
          return Option.isSome(found)
            ? answer(CronRunView, runView(found.value))
            : yield* notFound("run of this cron job")
        })
      })
    )
  })
)

const cronView = (record: ListedRecord, lastRunAt: Date | undefined, now: number) => {
  const spec = storedSpec(record.spec)
  const next = spec.enabled ? nextRun(spec.schedule, spec.timezone, now) : undefined
  return {
    id: record.uid,
    name: record.name,
    environment: record.environment ?? "",
    ...spec,
    catchUp: false as const,
    lastRunAt: lastRunAt?.toISOString() ?? null,
    nextRunAt: next === undefined ? null : new Date(next).toISOString(),
    createdAt: record.createdAt.toISOString(),
    updatedAt: record.updatedAt.toISOString()
  }
}

const runView = (run: RunRecord) => ({
  id: run.id,
  cronId: run.cronId,
  trigger: run.trigger,
  status: run.status,
  scheduledAt: run.scheduledAt.toISOString(),
  startedAt: run.startedAt?.toISOString() ?? null,
  finishedAt: run.finishedAt?.toISOString() ?? null,
  attempts: run.attempts,
  reason: run.reason
})
