/**
 * The engine's queue in Postgres. Postgres is the only coordinator: any number of processes may claim.
 *
 * A lease hides a row by moving its due time behind the lease's end, so one condition (`due_at <= now()`) serves
 * both "its time has come" and "its holder died". What lies between due time and rank is always the penalty of its
 * priority, so work whose holder died comes back with the priority it had. Sets travel as JSON or as joined text, one
 * parameter each.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as SqlError from "effect/sql/SqlError"
import { anyPool } from "#schemas/placement.ts"
import { MemberSignal, WorkSignal } from "#src/engine/Worker.ts"
import { type Lease, ResultsRefused, type Returned, WorkStore } from "#src/engine/WorkStore.ts"
import { Db, isRefused, orUnavailable, repeatable, type Sql, saidBy } from "./Db.ts"
import { lookStore } from "./look-rows.ts"
import { wakeLate } from "./wake-dependents.ts"
import { load, loaded } from "./work-loading.ts"
import { recordChanged, recordQuiet } from "./work-recording.ts"
import { afterLock, dueNow, lockWork } from "./work-rows.ts"

/** Announcements by NOTIFY. Every reconnection announces as well, for what was missed meanwhile. */
export const signal = Layer.effectContext(
  Effect.map(Db, ({ notifications }) =>
    Context.make(WorkSignal, notifications("svc_work")).pipe(
      Context.add(MemberSignal, notifications("svc_engine_process"))
    )
  )
)

export const layer = Layer.effect(
  WorkStore,
  Effect.gen(function* () {
    const { engine: sql } = yield* Db
    const release = Effect.fnUntraced(function* (leases: ReadonlyArray<Returned>) {
      if (leases.length === 0) return
      yield* repeatable(sql`
          with released as (
            update work w set lease_token = null, lease_until = null,
              due_at = now() - ${lateness(sql)}, rank = now() - ${lateness(sql)} + (w.rank - w.due_at)
            from unnest(
              string_to_array(${leases.map((lease) => lease.orgId).join()}, ',')::uuid[],
              string_to_array(${leases.map((lease) => lease.uid).join()}, ',')::uuid[],
              string_to_array(${leases.map((lease) => lease.token).join()}, ',')::bigint[],
              string_to_array(${leases.map((lease) => lease.lateBy).join()}, ',')::float8[]
            ) as l(org_id, uid, token, late)
            where w.org_id = l.org_id and w.uid = l.uid and w.lease_token = l.token
            returning w.uid
          )
          select pg_notify('svc_work', '') from released limit 1`)
    })
    return WorkStore.of({
      release,
      ...lookStore(sql),

      // Index: work_claim_pool, one short scan for each kind and pool.
      claim: Effect.fnUntraced(function* (rooms, leaseMs) {
        return yield* load(sql`
          with due as (
            select w.tuple, w.due_at, k.pool
            from jsonb_to_recordset(${sql.json(rooms)}::jsonb)
              as k(kind text, pool text, room int, "fullOrgs" uuid[], urgent boolean, "leaveMs" float8)
            ${pools(sql)}
            cross join lateral (
              select ctid as tuple, due_at from work
              where kind = k.kind and pool = p.pool and due_at <= now()
                and rank <= now() + case when k.urgent then interval '0' else interval '60 seconds' end
                and case when k."leaveMs" is null then true
                  else rank > now() or rank <= now() - k."leaveMs" * interval '1 millisecond' end
                and case when k."fullOrgs" = '{}' then true else org_id <> all (k."fullOrgs") end
              order by rank limit k.room for update skip locked
            ) w
            -- Bounds one claim.
            limit 1000
          ),
          taken as (
            ${take(sql, leaseMs)}, pool = due.pool
            -- The array is what makes the planner fetch them by where they are: for a join of so many it would read all.
            from due where w.ctid = due.tuple and w.ctid = any(array(select tuple from due))
            returning ${leased(sql)}, (extract(epoch from now() - due.due_at) * 1000)::float8 as "lateBy"
          )
          ${ofTaken(sql)}`)
      }),

      claimOne: (orgId, uid, leaseMs, pool) =>
        load(sql`
          with due as (
            select ctid as tuple from work
            where org_id = ${orgId}::uuid and uid = ${uid}::uuid and pool in (${pool}::text, ${anyPool}::text)
              and (lease_until is null or lease_until < now())
            for update skip locked
          ),
          taken as (
            ${take(sql, leaseMs)}
            from due where w.ctid = due.tuple
            returning ${leased(sql)}, 0::float8 as "lateBy"
          )
          ${ofTaken(sql)}`).pipe(Effect.map(([claimed]) => Option.fromUndefinedOr(claimed))),

      heartbeat: Effect.fnUntraced(function* (leases, leaseMs) {
        if (leases.length === 0) return []
        const kept = yield* repeatable(sql<{ readonly uid: string }>`
          update work w set
            lease_until = now() + ${leaseMs}::float8 * interval '1 millisecond',
            due_at = now() + ${leaseMs}::float8 * interval '1 millisecond',
            rank = now() + ${leaseMs}::float8 * interval '1 millisecond' + (w.rank - w.due_at)
          from ${leaseRows(sql, leases.toSorted(byUid))}
          where w.org_id = l.org_id and w.uid = l.uid and w.lease_token = l.token
          returning w.uid`)
        return matching(leases, kept)
      }),

      record: Effect.fnUntraced(function* (unordered) {
        const results = unordered.toSorted((a, b) => byUid(a.lease, b.lease))
        const quiet = results.filter((result) => result.change === undefined)
        const changed = results.filter((result) => result.change !== undefined)
        // First, since it alone may be refused: then nothing is written.
        const kept = changed.length === 0 ? [] : yield* repeatable(orRefused(recordChanged(sql, changed)))
        const uids = new Set(kept.map((row) => row.uid))
        yield* wakeLate(
          sql,
          changed.filter((result) => uids.has(result.lease.uid))
        )
        return matching(
          results.map((result) => result.lease),
          [...kept, ...(quiet.length === 0 ? [] : yield* repeatable(recordQuiet(sql, quiet)))]
        )
      }),

      cascade: Effect.fnUntraced(function* (orgId, uid) {
        yield* repeatable(sql`
          with spared as materialized (
            select uid from resource where org_id = ${orgId}::uuid and parent_uid = ${uid}::uuid
              and deleted_at is null and deletion_requested_at is null
          ),
          ${lockWork(sql, orgId, "spared", sql`true`)},
          marked as (
            update resource set deletion_requested_at = now(), phase = 'deleting', phase_since = now(),
              revision = nextval('resource_revision'), txid = pg_current_xact_id()
            where org_id = ${orgId}::uuid and parent_uid = ${uid}::uuid and deleted_at is null
              and deletion_requested_at is null and ${afterLock(sql)}
            returning org_id, uid
          ), woken as (
            update work w set ${dueNow(sql)}
            from marked where w.org_id = marked.org_id and w.uid = marked.uid
            returning w.uid
          )
          select pg_notify('svc_work', ''), pg_notify('svc_change', ${orgId}::text) from woken limit 1`)
      }),

      nextDueIn: Effect.fnUntraced(function* (work) {
        const [row] = yield* orUnavailable(sql<{ readonly ms: number | null }>`
          select (extract(epoch from min(first.due_at) - now()) * 1000)::float8 as ms
          from jsonb_to_recordset(${sql.json(work.map(({ kind, pool }) => ({ kind, pool })))}::jsonb) as k(kind text, pool text)
          ${pools(sql)}
          cross join lateral (
            select due_at from work where work.kind = k.kind and work.pool = p.pool order by rank limit 8
          ) first`)
        return Option.fromNullishOr(row?.ms)
      }),

      stats: orUnavailable(sql<{ kind: string; depth: number; due: number; oldestDueMs: number }>`
        select kind, count(*)::int as depth, count(*) filter (where due_at <= now())::int as due,
          coalesce(extract(epoch from now() - min(due_at) filter (where due_at <= now())) * 1000, 0)::float8 as "oldestDueMs"
        from work group by kind`)
    })
  })
)

/** The pools that are looked at for `k`: its own, and that of all. */
const pools = (sql: Sql) => sql`
  cross join lateral (select distinct pool from unnest(array[k.pool, ${anyPool}::text]) as both_pools(pool)) p`

/**
 * Nobody waits until the disk has it: a lease that a crash of Postgres takes back was none, and before anything is changed
 * out there it is extended, which waits. Its token would be handed out again by a sequence; so tokens rise by the clock
 * (`svc_lease_token`).
 */
const take = (sql: Sql, leaseMs: number) => sql`
  update work w set
    (lease_token, last_token) = (select t, t from svc_lease_token(w.last_token) as t),
    lease_until = now() + ${leaseMs}::float8 * interval '1 millisecond',
    due_at = now() + ${leaseMs}::float8 * interval '1 millisecond',
    rank = now() + ${leaseMs}::float8 * interval '1 millisecond' + (w.rank - w.due_at),
    again = false, waiting_on = null, kept = false`

const leased = (sql: Sql) => sql`
  w.org_id as "orgId", w.uid, w.kind, w.lease_token::text as token, w.attempt, w.retry_token as "retryToken"`

/**
 * What is leased, as it is now. The rows of `taken` were locked first and are found by where they were when the statement
 * began: one that was changed since is elsewhere, and is not leased. So what is read is as new as the lease, and a change
 * that comes later finds the lease and marks the row.
 */
const ofTaken = (sql: Sql) => sql`
  select t.*, ${loaded(sql)}
  from taken t
  -- The planner expects many; one by one is right for few, and no worse for many.
  cross join lateral (
    select * from resource r where r.org_id = t."orgId" and r.uid = t.uid and r.deleted_at is null limit 1
  ) r
  where (select set_config('synchronous_commit', 'off', true)) is not null`

/** Of a lease that is given back. What was changed meanwhile is due at once, whatever its holder says. */
const lateness = (sql: Sql) => sql`
  case when w.again then greatest(l.late, 0) else l.late end * interval '1 millisecond'`

/** What the store will not hold, tried again, is refused again. */
const orRefused = <A>(self: Effect.Effect<A, SqlError.SqlError>) =>
  Effect.catchIf(self, isRefused, (error) => Effect.fail(new ResultsRefused({ message: saidBy(error) })))

const leaseRows = (sql: Sql, leases: ReadonlyArray<Lease>) => sql`
  unnest(
    string_to_array(${leases.map((lease) => lease.orgId).join()}, ',')::uuid[],
    string_to_array(${leases.map((lease) => lease.uid).join()}, ',')::uuid[],
    string_to_array(${leases.map((lease) => lease.token).join()}, ',')::bigint[]
  ) as l(org_id, uid, token)`

/** All lock rows in this order: in another one each could wait for what the other has. */
const byUid = (a: Lease, b: Lease) => (a.uid < b.uid ? -1 : 1)

const matching = (leases: ReadonlyArray<Lease>, kept: ReadonlyArray<{ readonly uid: string }>) => {
  const uids = new Set(kept.map((row) => row.uid))
  return leases.filter((lease) => uids.has(lease.uid))
}
