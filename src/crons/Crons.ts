/** Cron jobs as requests and their reconciler see them: the schedule in force, and runs. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type { CronSpec } from "#schemas/cron.ts"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, inOrg, orUnavailable, repeatable, type Sql, transaction } from "#src/store/Db.ts"
import type { Actor } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { channel, type RunRecord } from "./run.ts"

/** A job's schedule as the runners follow it. */
export interface InForce {
  readonly name: string
  readonly environmentUid: string
  readonly config: CronSpec
}

interface Ref {
  readonly orgId: string
  readonly uid: string
}

/** Runs that one statement removes when their job is deleted. */
const batch = 2_000

export class Crons extends Context.Service<
  Crons,
  {
    readonly inForce: (ref: Ref) => Effect.Effect<Option.Option<InForce>, StoreUnavailable>
    /**
     * Puts a schedule in force. `nextAt` is the first time from now on, null for none; undefined goes on with the times
     * as they are. False: a later reconcile was here, and nothing was done.
     */
    readonly put: (
      ref: Ref & InForce & { readonly fence: bigint },
      nextAt: Date | null | undefined
    ) => Effect.Effect<boolean, StoreUnavailable>
    /** Milliseconds by the clock of the store, which all runners share: schedules are planned from its time. */
    readonly now: Effect.Effect<number, StoreUnavailable>
    /** Whether a schedule or a run is left of the job. */
    readonly remains: (ref: Ref) => Effect.Effect<boolean, StoreUnavailable>
    /** Takes the schedule away, stops what runs and removes all runs. False: a later reconcile was here, and nothing was done. */
    readonly remove: (ref: Ref & { readonly fence: bigint }) => Effect.Effect<boolean, StoreUnavailable>
    /** When each of the jobs last began to run. */
    readonly lastRuns: (
      orgId: string,
      uids: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyMap<string, Date>, StoreUnavailable>
    /** Makes the run `id`, or answers it if it was made before. None: the job is gone or going. */
    readonly trigger: (
      ref: Ref,
      id: string,
      actor: Actor
    ) => Effect.Effect<Option.Option<RunRecord>, StoreUnavailable>
    /** Newest first; what is planned and not due yet is not shown. */
    readonly runs: (
      ref: Ref,
      limit: number,
      before?: { readonly scheduledAt: string; readonly id: string }
    ) => Effect.Effect<ReadonlyArray<RunRecord>, StoreUnavailable>
    readonly run: (ref: Ref, id: string) => Effect.Effect<Option.Option<RunRecord>, StoreUnavailable>
  }
>()("svc/crons/Crons") {
  static readonly layer = Layer.effect(
    Crons,
    Effect.gen(function* () {
      const { api, engine } = yield* Db

      const run = Effect.fn("Crons.run")(function* ({ orgId, uid }: Ref, id: string) {
        const [row] = yield* repeatable(api<RunRecord>`
          select ${columns(api)} from cron_run r
          where r.org_id = ${orgId}::uuid and r.id = ${id}::uuid and r.cron_uid = ${uid}::uuid
            and ${inOrg(api, orgId)}`)
        return Option.fromUndefinedOr(row)
      })

      return Crons.of({
        inForce: Effect.fn("Crons.inForce")(function* ({ orgId, uid }) {
          const [row] = yield* repeatable(engine<InForce>`
            select name, environment_uid as "environmentUid", config from cron_schedule
            where org_id = ${orgId}::uuid and uid = ${uid}::uuid`)
          return Option.fromUndefinedOr(row)
        }),
        put: Effect.fn("Crons.put")(function* ({ orgId, uid, environmentUid, name, config, fence }, nextAt) {
          const restart = nextAt !== undefined
          const rows = yield* orUnavailable(
            transaction(
              engine,
              Effect.gen(function* () {
                // Whoever is planning runs ends first, so that the second statement sees what was planned.
                yield* engine`select uid from cron_schedule
                  where org_id = ${orgId}::uuid and uid = ${uid}::uuid for update`
                return yield* engine`
                  with put as (
                    insert into cron_schedule as s (org_id, uid, environment_uid, name, config, fence, next_at)
                    values (${orgId}::uuid, ${uid}::uuid, ${environmentUid}::uuid, ${name}, ${engine.json(config)}::jsonb,
                      ${fence}, ${nextAt ?? null}::timestamptz)
                    on conflict (org_id, uid) do update set environment_uid = excluded.environment_uid,
                      name = excluded.name, config = excluded.config, fence = excluded.fence,
                      next_at = case when ${restart}::boolean then excluded.next_at else s.next_at end
                      where s.fence <= excluded.fence
                    returning uid
                  ), unplanned as (
                    delete from cron_run
                    where org_id = ${orgId}::uuid and cron_uid in (select uid from put) and trigger = 'schedule'
                      and status = 'pending' and scheduled_at > now() and ${restart}::boolean
                  )
                  select pg_notify(${channel}, '') from put`
              })
            )
          )
          return rows.length > 0
        }),
        now: Effect.map(
          repeatable(engine<{ readonly now: number }>`
            select (extract(epoch from clock_timestamp()) * 1000)::float8 as now`),
          ([row]) => row?.now ?? 0
        ),
        remains: Effect.fn("Crons.remains")(function* ({ orgId, uid }) {
          const [row] = yield* repeatable(engine<{ readonly any: boolean }>`
            select exists (select from cron_schedule where org_id = ${orgId}::uuid and uid = ${uid}::uuid)
              or exists (select from cron_run where org_id = ${orgId}::uuid and cron_uid = ${uid}::uuid) as any`)
          return row?.any === true
        }),
        remove: Effect.fn("Crons.remove")(function* ({ orgId, uid, fence }) {
          // Without the schedule nobody plans or begins a run any more.
          const [row] = yield* repeatable(engine<{ readonly newer: boolean }>`
            with gone as (
              delete from cron_schedule where org_id = ${orgId}::uuid and uid = ${uid}::uuid and fence <= ${fence}
            )
            select exists (select from cron_schedule
              where org_id = ${orgId}::uuid and uid = ${uid}::uuid and fence > ${fence}) as newer`)
          if (row?.newer !== false) return false
          // A job of every minute has more than a hundred thousand runs. Index: cron_run_listing.
          yield* repeatable(engine<{ readonly count: number }>`
            with gone as (
              delete from cron_run where ctid = any(array(
                select ctid from cron_run where org_id = ${orgId}::uuid and cron_uid = ${uid}::uuid limit ${batch}::int))
              returning id, lease_token
            ), stopped as (select pg_notify(${channel}, 'stop ' || id) from gone where lease_token is not null)
            select (select count(*) from gone)::int as count, (select count(*) from stopped) as stopped`).pipe(
            Effect.repeat({ while: ([gone]) => (gone?.count ?? 0) >= batch })
          )
          return true
        }),
        // Index: cron_run_started.
        lastRuns: Effect.fn("Crons.lastRuns")(function* (orgId, uids) {
          if (uids.length === 0) return new Map()
          const rows = yield* repeatable(api<{ readonly uid: string; readonly at: Date | null }>`
            select c.uid, (
              select r.started_at from cron_run r
              where r.org_id = ${orgId}::uuid and r.cron_uid = c.uid::uuid and r.started_at is not null
                and ${inOrg(api, orgId)}
              order by r.started_at desc limit 1) as at
            from jsonb_array_elements_text(${api.json(uids)}::jsonb) as c(uid)`)
          return new Map(rows.flatMap(({ uid, at }) => (at === null ? [] : [[uid, at] as const])))
        }),
        trigger: Effect.fn("Crons.trigger")(function* ({ orgId, uid }, id, actor) {
          const [row] = yield* orUnavailable(api<RunRecord>`
            with job as materialized (
              select uid from resource
              where org_id = ${orgId}::uuid and uid = ${uid}::uuid and kind = 'Cron' and deletion_requested_at is null
                and ${inOrg(api, orgId)} for share
            ), made as (
              insert into cron_run as r (org_id, id, cron_uid, trigger, scheduled_at, due_at)
              select ${orgId}::uuid, ${id}::uuid, uid, 'manual', now(), now() from job
              where ${inOrg(api, orgId)}
              on conflict (org_id, id) do nothing
              returning ${columns(api)}
            ), audited as (${auditOf(api, orgId, actor, "made")})
            select made.*, pg_notify(${channel}, '') from made`)
          return row === undefined ? yield* run({ orgId, uid }, id) : Option.some(row)
        }),
        // Index: cron_run_listing.
        runs: Effect.fn("Crons.runs")(function* ({ orgId, uid }, limit, before) {
          return yield* repeatable(api<RunRecord>`
            select ${columns(api)} from cron_run r
            where r.org_id = ${orgId}::uuid and r.cron_uid = ${uid}::uuid and ${inOrg(api, orgId)}
              and (r.scheduled_at <= now() or r.status <> 'pending')
              and (${before?.id ?? null}::uuid is null or (r.scheduled_at, r.id)
                < (${before?.scheduledAt ?? null}::timestamptz, ${before?.id ?? null}::uuid))
            order by r.scheduled_at desc, r.id desc limit ${limit}::int`)
        }),
        run
      })
    })
  )
}

const columns = (sql: Sql) => sql`
  r.id, r.cron_uid as "cronId", r.trigger, r.status, r.scheduled_at as "scheduledAt", r.started_at as "startedAt",
  r.finished_at as "finishedAt", r.attempts, r.reason`
