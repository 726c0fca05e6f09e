/** Handlers of `crons.*`. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { CronSpec } from "#schemas/cron.ts"
import { nextRun } from "#schemas/cron-schedule.ts"
import { looksLikeUid } from "#schemas/names.ts"
import { Crons } from "#src/crons/Crons.ts"
import type { RunRecord } from "#src/crons/run.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import { answer } from "./answer.ts"
import { Cursors } from "./cursor.ts"
import { Api } from "./definition/api.ts"
import { CronList, CronRunPage, CronRunView, CronView } from "./definition/crons.ts"
import { defaultPageSize } from "./definition/fields.ts"
import { RequestScope } from "./definition/scope.ts"
import { faultsOf } from "./failure.ts"
import { guard } from "./guard.ts"
import { fromStore, invalid, notFound, problem, unreadable } from "./problem.ts"
import { viewAll } from "./views.ts"
import { amend, createdBefore, remove, stored } from "./writing.ts"

const decodeSpec = Schema.decodeUnknownEffect(CronSpec, { errors: "all" })
const storedSpec = Schema.decodeUnknownSync(CronSpec)
/** What single fields cannot tell of: bounds of retries that contradict each other. */
const completed = (spec: unknown) =>
  Effect.mapError(decodeSpec(spec), (error) => invalid(faultsOf("", error.issue)))

/** The record that the gate found. */
const theCron = Effect.flatMap(RequestScope, ({ record }) =>
  record === undefined ? Effect.fail(notFound("cron job")) : Effect.succeed(record)
)

export const layer = HttpApiBuilder.group(
  Api,
  "crons",
  Effect.fnUntraced(function* (handlers) {
    const resources = yield* Resources
    const crons = yield* Crons
    const cursors = yield* Cursors

    const viewed = Effect.fnUntraced(function* (orgId: string, records: ReadonlyArray<ResourceRecord>) {
      const last = yield* Effect.mapError(
        crons.lastRuns(
          orgId,
          records.map(({ uid }) => uid)
        ),
        fromStore
      )
      const now = yield* Clock.currentTimeMillis
      return yield* viewAll(records, (record) => cronView(record, last.get(record.uid), now))
    })
    const viewOf = Effect.fnUntraced(function* (record: ResourceRecord) {
      const [view] = yield* viewed(record.orgId, [record])
      return view ?? (yield* unreadable)
    })
    const one = (record: ResourceRecord) =>
      Effect.map(viewOf(record), (view) => answer(CronView, view, record))

    return handlers.handleAll(
      guard(Api.groups.crons)({
        list: Effect.fnUntraced(function* () {
          const { orgId, place, environment } = yield* RequestScope
          const records = yield* Effect.mapError(
            resources.listKind(orgId, "Cron", place?.projectId ?? "", environment),
            fromStore
          )
          return answer(CronList, yield* viewed(orgId, records))
        }),
        create: Effect.fnUntraced(function* ({ payload }) {
          const before = yield* createdBefore
          if (before !== undefined) return yield* viewOf(before)
          const { orgId, place, environment, caller, reservation } = yield* RequestScope
          const { name, ...asked } = payload
          const { uid } = reservation
          const spec = yield* completed(asked)
          const [written] = yield* stored(
            resources.write(
              orgId,
              [
                {
                  action: "create",
                  uid,
                  kind: "Cron",
                  projectId: place?.projectId ?? null,
                  environment: environment ?? null,
                  name,
                  parentUid: place?.environmentUid ?? null,
                  spec,
                  managedBy: "api"
                }
              ],
              { ...caller.actor, outcome: 201 }
            )
          )
          const at = written?.createdAt ?? new Date(0)
          const made = { uid, name, environment: environment ?? null, spec, createdAt: at, updatedAt: at }
          return cronView(made, undefined, yield* Clock.currentTimeMillis)
        }),
        get: () => Effect.flatMap(theCron, one),
        update: Effect.fnUntraced(function* ({ payload }) {
          const record = yield* theCron
          const after = yield* amend(
            record,
            Effect.fnUntraced(function* (record: ResourceRecord) {
              const current = storedSpec(record.spec)
              const spec = yield* completed({
                ...current,
                ...payload,
                retry: { ...current.retry, ...payload.retry }
              })
              return { spec, managedBy: "api" as const }
            })
          )
          return yield* one(after)
        }),
        delete: () => Effect.flatMap(theCron, remove),
        trigger: Effect.fnUntraced(function* () {
          const { orgId, caller, reservation } = yield* RequestScope
          const { uid, name } = yield* theCron
          const made = yield* Effect.mapError(
            crons.trigger({ orgId, uid }, reservation.uid, { ...caller.actor, outcome: 202 }),
            fromStore
          )
          return Option.isSome(made)
            ? runView(made.value)
            : yield* problem(409, "being_deleted", `Cron "${name}" is being deleted`)
        }),
        listRuns: Effect.fnUntraced(function* ({ query }) {
          const { orgId } = yield* RequestScope
          const { uid } = yield* theCron
          const limit = query.limit ?? defaultPageSize
          const list = `runs ${uid}`
          const [scheduledAt, id] = (yield* cursors.decode(list, query.cursor)) ?? []
          const before = scheduledAt === undefined || id === undefined ? undefined : { scheduledAt, id }
          const runs = yield* Effect.mapError(crons.runs({ orgId, uid }, limit + 1, before), fromStore)
          const items = runs.slice(0, limit)
          const last = items.at(-1)
          return answer(CronRunPage, {
            items: items.map(runView),
            nextCursor:
              runs.length > limit && last !== undefined
                ? cursors.encode(list, [last.scheduledAt.toISOString(), last.id])
                : null
          })
        }),
        getRun: Effect.fnUntraced(function* ({ params }) {
          const { orgId } = yield* RequestScope
          const { uid } = yield* theCron
          const found = looksLikeUid(params.runId)
            ? yield* Effect.mapError(crons.run({ orgId, uid }, params.runId), fromStore)
            : Option.none()
          return Option.isSome(found)
            ? answer(CronRunView, runView(found.value))
            : yield* notFound("run of this cron job")
        })
      })
    )
  })
)

const cronView = (
  record: Pick<ResourceRecord, "uid" | "name" | "environment" | "spec" | "createdAt" | "updatedAt">,
  lastRunAt: Date | undefined,
  now: number
) => {
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
