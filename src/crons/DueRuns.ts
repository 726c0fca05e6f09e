/**
 * Runs as the runners see them: which are to be planned, whose time has come, what became of them.
 *
 * Postgres is the only coordinator. Times are planned a little ahead, one row each, so that when many jobs share a minute
 * nothing is left to do at that minute but to begin. A run is held under a lease whose end is its due time, and written
 * only by whoever holds it; whether it may begin beside others of its job is decided while the job's row is locked.
 */
import { randomUUIDv7 } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { CronSpec } from "#schemas/cron.ts"
import { nextRun } from "#schemas/cron-schedule.ts"
import { Db, orUnavailable, repeatable, transaction } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store/errors.ts"
import { type Candidate, decide } from "./deciding.ts"
import { CronOptions } from "./options.ts"
import { type Attempt, channel, type RunStatus } from "./run.ts"

/** A run that this process may make now, and no other process until the lease ends. */
export interface Claimed {
  readonly orgId: string
  readonly id: string
  readonly cronUid: string
  readonly cronName: string
  readonly environmentUid: string
  readonly spec: CronSpec
  readonly scheduledAt: Date
  /** Milliseconds from its time until it was claimed. */
  readonly lateBy: number
  /** Which attempt this is, from 1. */
  readonly attempt: number
  readonly attempts: ReadonlyArray<Attempt>
  readonly lease: string
}

/** What an attempt came to. */
export interface Result {
  readonly claimed: Claimed
  readonly attempts: ReadonlyArray<Attempt>
  readonly status: "succeeded" | "failed" | "timed_out" | "running"
  readonly reason: string | null
  /** For a run that goes on: seconds until its next attempt. */
  readonly delay: number
}

interface Planned {
  readonly orgId: string
  readonly uid: string
  readonly schedule: string
  readonly timezone: string
  readonly nextAt: number
  readonly now: number
}

export class DueRuns extends Context.Service<
  DueRuns,
  {
    /** Plans the times that come soon; answers how many jobs it looked at. */
    readonly plan: (most: number) => Effect.Effect<number, StoreUnavailable>
    /** Begins runs whose time has come, of organizations other than those named. */
    readonly claim: (
      most: number,
      fullOrgs: ReadonlyArray<string>
    ) => Effect.Effect<
      { readonly looked: number; readonly claimed: ReadonlyArray<Claimed> },
      StoreUnavailable
    >
    readonly record: (results: ReadonlyArray<Result>) => Effect.Effect<void, StoreUnavailable>
    /** Extends leases; answers the ids of the runs that are still held. */
    readonly extend: (held: ReadonlyArray<Claimed>) => Effect.Effect<ReadonlySet<string>, StoreUnavailable>
    /** Somebody else may go on at once. */
    readonly release: (held: ReadonlyArray<Claimed>) => Effect.Effect<void, StoreUnavailable>
    /** The queue of this name in an environment; undefined: there is none. */
    readonly queue: (
      orgId: string,
      environmentUid: string,
      name: string
    ) => Effect.Effect<string | undefined, StoreUnavailable>
    /** Milliseconds until there is something to plan, and until a run is due; undefined: nothing is there. */
    readonly next: Effect.Effect<
      { readonly plan: number | undefined; readonly run: number | undefined },
      StoreUnavailable
    >
  }
>()("svc/crons/DueRuns") {
  static readonly layer = Layer.effect(
    DueRuns,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const { aheadMs, missedAfterMs, leaseMs } = yield* CronOptions

      const planning = (most: number) =>
        Effect.gen(function* () {
          // Index: cron_schedule_due.
          const rows = yield* sql<Planned>`
            select org_id as "orgId", uid, config->>'schedule' as schedule, config->>'timezone' as timezone,
              (extract(epoch from next_at) * 1000)::float8 as "nextAt",
              (extract(epoch from clock_timestamp()) * 1000)::float8 as now
            from cron_schedule where next_at <= clock_timestamp() + make_interval(secs => ${aheadMs / 1000}::float8)
            order by next_at limit ${most}::int for update skip locked`
          if (rows.length === 0) return 0
          const input = rows.map((row) => ({
            org_id: row.orgId,
            uid: row.uid,
            id: randomUUIDv7(),
            at: new Date(row.nextAt).toISOString(),
            ...follow(row, missedAfterMs)
          }))
          yield* sql`
            with input as materialized (
              select * from jsonb_to_recordset(${sql.json(input)}::jsonb)
                as i(org_id uuid, uid uuid, id uuid, at timestamptz, next timestamptz, missed text)
            ), made as (
              insert into cron_run (org_id, id, cron_uid, trigger, scheduled_at, due_at, status, finished_at, reason)
              select org_id, id, uid, 'schedule', at, at, case when missed is null then 'pending' else 'skipped' end,
                case when missed is null then null else now() end, missed
              from input on conflict (cron_uid, scheduled_at) where trigger = 'schedule' do nothing
            )
            update cron_schedule s set next_at = i.next from input i where s.org_id = i.org_id and s.uid = i.uid`
          return rows.length
        })

      const claiming = (most: number, fullOrgs: ReadonlyArray<string>) =>
        Effect.gen(function* () {
          // The table empties and fills with the clock, so what the planner knows of it is never true; without these it
          // would sort all that is due for each claim.
          yield* sql`select set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true)`
          // Index: cron_run_due.
          const rows = yield* sql<Candidate>`
            with due as materialized (
              select r.org_id, r.id, r.cron_uid, r.trigger, r.scheduled_at, r.attempt, r.attempts, r.started_at,
                r.lease_token, r.due_at
              from cron_run r
              where r.finished_at is null and r.due_at <= now() ${
                fullOrgs.length === 0
                  ? sql``
                  : sql`and not exists (select from jsonb_array_elements_text(${sql.json(fullOrgs)}::jsonb) as f
                      where f::uuid = r.org_id)`
              }
              order by r.due_at limit ${most}::int for no key update skip locked
            )
            select r.org_id as "orgId", r.id, r.cron_uid as "cronUid", s.name as "cronName",
              s.environment_uid as "environmentUid", s.config as spec, r.trigger, r.scheduled_at as "scheduledAt",
              r.attempt, r.attempts, r.started_at as "startedAt", r.lease_token is not null as abandoned,
              (extract(epoch from clock_timestamp() - r.scheduled_at) * 1000)::float8 as "lateBy"
            from due r join cron_schedule s on s.org_id = r.org_id and s.uid = r.cron_uid
            for no key update of s skip locked`
          if (rows.length === 0) return { looked: 0, claimed: [] }
          const exclusive = rows.filter(
            ({ attempt, spec }) => attempt === 0 && spec.concurrencyPolicy !== "allow"
          )
          // The jobs are locked now: this statement sees every run that anybody has begun. Index: cron_run_open.
          const active =
            exclusive.length === 0
              ? []
              : yield* sql<{ readonly cronUid: string; readonly orgId: string; readonly id: string }>`
                  select r.cron_uid as "cronUid", r.org_id as "orgId", r.id
                  from (select distinct e.org_id, e.uid from jsonb_to_recordset(${sql.json(
                    exclusive.map(({ orgId, cronUid }) => ({ org_id: orgId, uid: cronUid }))
                  )}::jsonb) as e(org_id uuid, uid uuid)) c
                  join cron_run r on r.org_id = c.org_id and r.cron_uid = c.uid
                  where r.finished_at is null and r.started_at is not null`
          // Of several runs of one job the later one counts as the later one.
          const inOrder = [...rows].sort((a, b) => a.scheduledAt.getTime() - b.scheduledAt.getTime())
          const decisions = decide(inOrder, active, missedAfterMs)
          const input = decisions.map(({ orgId, id, status, reason, attempts }) => ({
            org_id: orgId,
            id,
            status,
            reason,
            attempts
          }))
          const written = yield* sql<{
            readonly id: string
            readonly lease: string | null
            readonly status: RunStatus
          }>`
            with input as materialized (
              select * from jsonb_to_recordset(${sql.json(input)}::jsonb)
                as i(org_id uuid, id uuid, status text, reason text, attempts jsonb)
            )
            update cron_run r set status = i.status, reason = i.reason, attempts = coalesce(i.attempts, r.attempts),
              started_at = case when i.status = 'running' then coalesce(r.started_at, clock_timestamp()) else r.started_at end,
              finished_at = case when i.status <> 'running' then clock_timestamp() end,
              attempt = r.attempt + case when i.status = 'running' then 1 else 0 end,
              lease_token = case when i.status = 'running' then nextval('lease_token') end,
              due_at = case when i.status = 'running'
                then clock_timestamp() + make_interval(secs => ${leaseMs / 1000}::float8) end
            from input i where r.org_id = i.org_id and r.id = i.id and r.finished_at is null
            returning r.id, r.lease_token::text as lease, r.status,
              case when i.status = 'replaced' then pg_notify(${channel}, 'stop ' || r.id) end`
          const leases = new Map(written.map(({ id, lease }) => [id, lease]))
          const attempts = new Map(decisions.map((one) => [one.id, one.attempts]))
          return {
            looked: rows.length,
            claimed: rows.flatMap((row): ReadonlyArray<Claimed> => {
              const lease = leases.get(row.id) ?? null
              if (lease === null) return []
              return [
                {
                  ...row,
                  attempt: row.attempt + 1,
                  attempts: attempts.get(row.id) ?? row.attempts,
                  lease
                }
              ]
            })
          }
        })

      return DueRuns.of({
        plan: (most) => repeatable(transaction(sql, planning(most))),
        claim: (most, fullOrgs) => orUnavailable(transaction(sql, claiming(most, fullOrgs))),
        record: (results) => {
          const input = results.map(({ claimed, attempts, status, reason, delay }) => ({
            org_id: claimed.orgId,
            id: claimed.id,
            lease: claimed.lease,
            attempts,
            status,
            reason,
            delay
          }))
          return Effect.asVoid(
            repeatable(sql`
              with input as materialized (
                select * from jsonb_to_recordset(${sql.json(input)}::jsonb)
                  as i(org_id uuid, id uuid, lease bigint, attempts jsonb, status text, reason text, delay float8)
              )
              update cron_run r set status = i.status, reason = i.reason, attempts = i.attempts, lease_token = null,
                finished_at = case when i.status <> 'running' then clock_timestamp() end,
                due_at = case when i.status = 'running' then clock_timestamp() + make_interval(secs => i.delay) end
              from input i
              where r.org_id = i.org_id and r.id = i.id and r.lease_token = i.lease and r.finished_at is null`)
          )
        },
        extend: (held) =>
          Effect.map(
            repeatable(sql<{ readonly id: string }>`
              with input as materialized (${leased(held)})
              update cron_run r set due_at = clock_timestamp() + make_interval(secs => ${leaseMs / 1000}::float8)
              from input i
              where r.org_id = i.org_id and r.id = i.id and r.lease_token = i.lease and r.finished_at is null
              returning r.id`),
            (rows) => new Set(rows.map(({ id }) => id))
          ),
        release: (held) =>
          Effect.asVoid(
            repeatable(sql`
              with input as materialized (${leased(held)})
              update cron_run r set due_at = clock_timestamp()
              from input i
              where r.org_id = i.org_id and r.id = i.id and r.lease_token = i.lease and r.finished_at is null`)
          ),
        // Index: resource_children.
        queue: (orgId, environmentUid, name) =>
          Effect.map(
            repeatable(sql<{ readonly uid: string }>`
              select uid from resource where org_id = ${orgId}::uuid and parent_uid = ${environmentUid}::uuid
                and kind = 'Queue' and name = ${name} and deleted_at is null and deletion_requested_at is null`),
            ([row]) => row?.uid
          ),
        next: Effect.map(
          repeatable(sql<{ readonly plan: number | null; readonly run: number | null }>`
            select
              (extract(epoch from (select min(next_at) from cron_schedule) - clock_timestamp()) * 1000)::float8 as plan,
              (extract(epoch from (select min(due_at) from cron_run where finished_at is null) - clock_timestamp())
                * 1000)::float8 as run`),
          ([row]) => ({
            plan: row?.plan == null ? undefined : row.plan - aheadMs,
            run: row?.run ?? undefined
          })
        )
      })

      function leased(held: ReadonlyArray<Claimed>) {
        return sql`select * from jsonb_to_recordset(${sql.json(
          held.map(({ orgId, id, lease }) => ({ org_id: orgId, id, lease }))
        )}::jsonb) as i(org_id uuid, id uuid, lease bigint)`
      }
    })
  )
}

/** Times that are counted one by one before it is said that there were more. */
const mostCounted = 1_000

/** The time after the planned one; and, when nobody planned for long, what was missed. */
const follow = ({ schedule, timezone, nextAt, now }: Planned, missedAfterMs: number) => {
  const iso = (instant: number | undefined) =>
    instant === undefined ? null : new Date(instant).toISOString()
  if (now - nextAt <= missedAfterMs) return { next: iso(nextRun(schedule, timezone, nextAt)), missed: null }
  let count = 0
  let last = nextAt
  for (let at: number | undefined = nextAt; at !== undefined && at <= now; ) {
    count++
    last = at
    at = count < mostCounted ? nextRun(schedule, timezone, at) : undefined
  }
  const times =
    count === 1
      ? "Its time was missed"
      : `${count < mostCounted ? count : `At least ${count}`} times from ${iso(nextAt)} to ${iso(last)} were missed`
  return {
    next: iso(nextRun(schedule, timezone, now)),
    missed: `${times}: no control plane was running. Missed times are not made up for`
  }
}
