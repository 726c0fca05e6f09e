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
import type { Rooms } from "#src/loops/fair-share.ts"
import { Db, orUnavailable, repeatable, transaction } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { type Candidate, decide, tooLate } from "./concurrency-policy.ts"
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

export interface Claim {
  /** The moment that it went by, by the clock of the store. */
  readonly at: string
  readonly looked: number
  readonly claimed: ReadonlyArray<Claimed>
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
    /** Begins runs whose time has come: no more of an organization than it has room for. */
    readonly claim: (most: number, rooms: Rooms) => Effect.Effect<Claim, StoreUnavailable>
    /** Skips runs whose time is too long ago to begin; answers how many. */
    readonly skipLate: (most: number) => Effect.Effect<number, StoreUnavailable>
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
    /** Milliseconds until there is something to plan; undefined: there is nothing. */
    readonly nextPlan: Effect.Effect<number | undefined, StoreUnavailable>
    /** Milliseconds until a run is due that was not at the moment of a claim; undefined: there is none. */
    readonly nextRun: (
      after: string
    ) => Effect.Effect<{ readonly nextIn: number | undefined; readonly left: boolean }, StoreUnavailable>
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
          const next = nextRuns()
          const input = yield* Effect.forEach(rows, (row, index) =>
            Effect.as(
              // Walking a calendar takes a while: others get their turn in between.
              index % 32 === 31 ? Effect.yieldNow : Effect.void,
              {
                org_id: row.orgId,
                uid: row.uid,
                id: randomUUIDv7(),
                at: new Date(row.nextAt).toISOString(),
                ...follow(row, missedAfterMs, next)
              }
            )
          )
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

      const claiming = (most: number, { holders, others }: Rooms) =>
        Effect.gen(function* () {
          // The table empties and fills with the clock, so what the planner knows of it is never true; without these it
          // would sort all that is due for each claim.
          const [settings] = yield* sql<{ readonly at: string }>`
            select set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true), now()::text as at`
          const at = settings?.at ?? "-infinity"
          const held = [...holders].map(([org, { held, room }]) => ({ org_id: org, held, room }))
          // Index: cron_run_turn; one step for each organization that has a run ahead. Those first that have the fewest
          // under way, so that a long queue of one holds up nobody else.
          const rows = yield* sql<Candidate>`
            with recursive waiting as (
              (select org_id, due_at from cron_run where finished_at is null order by org_id, due_at limit 1)
              union all
              select n.org_id, n.due_at from waiting w cross join lateral (
                select r.org_id, r.due_at from cron_run r where r.finished_at is null and r.org_id > w.org_id
                order by r.org_id, r.due_at limit 1) n
            ), turn as (
              select w.org_id, coalesce(h.room, ${others}::int) as room
              from waiting w left join jsonb_to_recordset(${sql.json(held)}::jsonb) as h(org_id uuid, held int, room int)
                on h.org_id = w.org_id
              where w.due_at <= now() and coalesce(h.room, ${others}::int) > 0
              order by coalesce(h.held, 0), w.due_at limit ${most}::int
            ), due as materialized (
              select d.* from turn t cross join lateral (
                select r.org_id, r.id, r.cron_uid, r.trigger, r.scheduled_at, r.attempt, r.attempts, r.started_at,
                  r.lease_token, r.due_at
                from cron_run r where r.org_id = t.org_id and r.finished_at is null and r.due_at <= now()
                order by r.org_id, r.due_at limit t.room for no key update skip locked) d
              limit ${most}::int
            )
            select r.org_id as "orgId", r.id, r.cron_uid as "cronUid", s.name as "cronName",
              s.environment_uid as "environmentUid", s.config as spec, r.trigger, r.scheduled_at as "scheduledAt",
              r.attempt, r.attempts, r.started_at as "startedAt", r.lease_token is not null as abandoned,
              (extract(epoch from clock_timestamp() - r.scheduled_at) * 1000)::float8 as "lateBy"
            from due r join cron_schedule s on s.org_id = r.org_id and s.uid = r.cron_uid
            for no key update of s skip locked`
          if (rows.length === 0) return { at, looked: 0, claimed: [] }
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
            at,
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
        claim: (most, rooms) => orUnavailable(transaction(sql, claiming(most, rooms))),
        // Index: cron_run_due.
        skipLate: (most) =>
          Effect.map(
            repeatable(sql`
              with late as materialized (
                select org_id, id from cron_run
                where finished_at is null and due_at < now() - make_interval(secs => ${missedAfterMs / 1000}::float8)
                  and trigger = 'schedule' and status = 'pending'
                order by due_at limit ${most}::int for no key update skip locked
              )
              update cron_run r set status = 'skipped', reason = ${tooLate(missedAfterMs)}, due_at = null,
                finished_at = clock_timestamp()
              from late l where r.org_id = l.org_id and r.id = l.id
              returning 1`),
            (rows) => rows.length
          ),
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
        nextPlan: Effect.map(
          repeatable(sql<{ readonly plan: number | null }>`
            select (extract(epoch from min(next_at) - clock_timestamp()) * 1000)::float8 as plan from cron_schedule`),
          ([row]) => (row?.plan == null ? undefined : row.plan - aheadMs)
        ),
        // Index: cron_run_due.
        nextRun: (after) =>
          Effect.map(
            repeatable(sql<{ readonly run: number | null; readonly left: boolean }>`
              select
                (extract(epoch from (select min(due_at) from cron_run
                  where finished_at is null and due_at > ${after}::timestamptz) - clock_timestamp()) * 1000)::float8 as run,
                exists (select from cron_run where finished_at is null and due_at <= ${after}::timestamptz) as left`),
            ([row]) => ({ nextIn: row?.run ?? undefined, left: row?.left === true })
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

/** Many jobs have the same schedule at the same moment: what comes next is looked for once. */
const nextRuns = (): typeof nextRun => {
  const known = new Map<string, number | undefined>()
  return (schedule, timezone, after) => {
    const key = JSON.stringify([schedule, timezone, after])
    if (!known.has(key)) known.set(key, nextRun(schedule, timezone, after))
    return known.get(key)
  }
}

/** The time after the planned one; and, when nobody planned for long, that there were some, which nobody counts. */
const follow = (
  { schedule, timezone, nextAt, now }: Planned,
  missedAfterMs: number,
  next: typeof nextRun
) => {
  const iso = (instant: number | undefined) =>
    instant === undefined ? null : new Date(instant).toISOString()
  const second = next(schedule, timezone, nextAt)
  if (now - nextAt <= missedAfterMs) return { next: iso(second), missed: null }
  const one = second === undefined || second > now
  const times = one ? "Its time was missed" : `All times from ${iso(nextAt)} to ${iso(now)} were missed`
  return {
    next: iso(one ? second : next(schedule, timezone, now)),
    missed: `${times}: no control plane was running. Missed times are not made up for`
  }
}
