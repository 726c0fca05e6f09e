/**
 * Stores batches, each once. What comes while a statement is under way goes with the next one, so that under load
 * statements get larger instead of more; who was answered is on disk. How many may wait is bounded.
 */
import * as Context from "effect/Context"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { batched } from "#src/access/batching.ts"
import { answered } from "#src/engine/answered.ts"
import { Db, repeatable, type Sql, wasRefused } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { devices, metrics, navigations, type SpeedEvent } from "./batch.ts"
import { type DailyBudgetUsed, type Intake, makeDailyBudget } from "./daily-budget.ts"
import { smallest } from "./sketch.ts"

export interface NewBatch {
  readonly orgId: string
  readonly projectId: string
  readonly environmentUid: string
  readonly batchId: string
  readonly events: ReadonlyArray<SpeedEvent>
  /** Of the request that it came in. */
  readonly bytes: number
}

/** More come than the store takes. */
export class IntakeBusy extends Schema.TaggedError<IntakeBusy>()("IntakeBusy", { message: Schema.String }) {}

/** Batches of one process that may wait for the store: a few seconds of what it takes. */
export const mostWaiting = 4_000
const longestStatementMs = 5_000
const longestWaitMs = 10_000

export class SpeedBatches extends Context.Service<
  SpeedBatches,
  {
    /** False: the batch is there already. */
    readonly add: (batch: NewBatch) => Effect.Effect<boolean, DailyBudgetUsed | IntakeBusy | StoreUnavailable>
  }
>()("svc/speed-insights/SpeedBatches") {
  static readonly layer = Layer.effect(
    SpeedBatches,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const budget = yield* makeDailyBudget
      let waiting = 0
      let number = 0
      const store = yield* batched(
        ({ ord }: Entry) => String(ord),
        (entries) =>
          answered("store measurements", longestStatementMs)(insertEach(sql, entries, budget.count)),
        // Two at once; copies of a batch meet in one of them.
        ({ batchId }) => String((batchId.codePointAt(batchId.length - 1) ?? 0) % 2)
      )
      return SpeedBatches.of({
        add: Effect.fnUntraced(function* (batch) {
          yield* budget.check(batch.projectId)
          if (waiting >= mostWaiting)
            return yield* new IntakeBusy({ message: "More measurements come than the store takes" })
          waiting++
          // It has its place until it is stored, also when whoever sent it has gone.
          return yield* Effect.uninterruptible(
            Effect.ensuring(
              Effect.flatMap(store({ ...batch, day: dayOf(batch.events), ord: number++ }), Effect.fromResult),
              Effect.sync(() => waiting--)
            )
          ).pipe(answered("store measurements", longestWaitMs))
        })
      })
    })
  )
}

interface Entry extends NewBatch {
  readonly day: string
  /** In the order in which they came. */
  readonly ord: number
}

const dayOf = (events: ReadonlyArray<SpeedEvent>): string =>
  new Date(Math.min(...events.map(({ timestamp }) => DateTime.toEpochMillis(timestamp))))
    .toISOString()
    .slice(0, 10)

/** Answers for each, in order. One that the store does not take keeps out none of the others. */
const insertEach = Effect.fnUntraced(function* (
  sql: Sql,
  entries: ReadonlyArray<Entry>,
  count: (intakes: Iterable<Intake>) => Effect.Effect<void>
) {
  const store = (some: ReadonlyArray<Entry>) =>
    Effect.map(
      Effect.tap(repeatable(insert(sql, some)), ({ intakes }) => count(intakes)),
      ({ isNew }) => isNew
    )
  const added = yield* Effect.result(store(entries))
  if (Result.isSuccess(added)) return added.success.map((one) => Result.succeed(one))
  if (!wasRefused(added.failure)) return yield* added.failure
  return yield* Effect.forEach(entries, (entry) =>
    Effect.result(Effect.map(store([entry]), ([one = false]) => one))
  )
})

/** What the column `real` holds: it refuses what is too small for it, and such a value counts as 0 anyway. */
const stored = (value: number): number => (value < smallest ? 0 : value)

interface Added extends Intake {
  readonly day: string
  readonly batchId: string
}

/** Answers for each, in order, whether it is new, and what is stored today of the projects that something new came of. */
const insert = (sql: Sql, entries: ReadonlyArray<Entry>) => {
  const keyOf = ({ projectId, day, batchId }: Entry) => `${projectId} ${day} ${batchId}`
  const first = new Map<string, Entry>()
  for (const entry of entries) if (!first.has(keyOf(entry))) first.set(keyOf(entry), entry)
  const rows = [...first.values()].map(({ events, ...row }) => ({
    ...row,
    at: events.map(({ timestamp }) => DateTime.formatIso(timestamp)),
    metric: events.map(({ metric }) => metrics.indexOf(metric)),
    value: events.map(({ value }) => stored(value)),
    route: events.map(({ route }) => route),
    device: events.map(({ device }) => devices.indexOf(device)),
    navigation: events.map(({ navigationType }) => navigations.indexOf(navigationType))
  }))
  // In the order of their keys, so that two statements do not wait for each other's rows.
  return Effect.map(
    sql<Added>`
      with given as materialized (
        select * from jsonb_to_recordset(${sql.json(rows)}::jsonb) as b("orgId" uuid, "projectId" uuid,
          "environmentUid" uuid, day date, "batchId" text, at timestamptz[], metric smallint[], value real[],
          route text[], device smallint[], navigation smallint[], bytes int)
      ), added as (
        insert into speed_batch (org_id, project_uid, environment_uid, day, batch_id, at, metric, value, route, device,
          navigation)
        select "orgId", "projectId", "environmentUid", day, "batchId", at, metric, value, route, device, navigation
        from given order by "orgId", "projectId", day, "batchId"
        on conflict do nothing
        returning org_id, project_uid, day, batch_id, cardinality(metric) as events
      ), counted as (
        insert into speed_intake as i (org_id, project_uid, day, events, bytes)
        select a.org_id, a.project_uid, (now() at time zone 'UTC')::date, sum(a.events), sum(g.bytes)
        from added a join given g on g."projectId" = a.project_uid and g.day = a.day and g."batchId" = a.batch_id
        group by 1, 2 order by 1, 2
        on conflict (org_id, project_uid, day) do update set events = i.events + excluded.events,
          bytes = i.bytes + excluded.bytes
        returning project_uid, day, events, bytes
      )
      select a.project_uid as "projectId", a.day::text as day, a.batch_id as "batchId", c.events::float8 as events,
        c.bytes::float8 as bytes,
        extract(epoch from (c.day + 1)::timestamp at time zone 'UTC' - now())::float8 * 1000 as "leftMs"
      from added a join counted c on c.project_uid = a.project_uid`,
    (added) => {
      const fresh = new Set(added.map(({ projectId, day, batchId }) => `${projectId} ${day} ${batchId}`))
      return {
        isNew: entries.map((entry) => fresh.has(keyOf(entry)) && first.get(keyOf(entry)) === entry),
        intakes: new Map(added.map((one): [string, Intake] => [one.projectId, one])).values()
      }
    }
  )
}
