/**
 * The engine's queue in Postgres. Postgres is the only coordinator: any number of processes may claim.
 *
 * A lease hides a row by moving its due time behind the lease's end, so one condition (`due_at <= now()`) serves
 * both "its time has come" and "its holder died". What lies between due time and rank is always the penalty of its
 * priority, so work whose holder died comes back with the priority it had. Sets travel as JSON or as joined text, one
 * parameter each.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import { Condition, Phase } from "#schemas/condition.ts"
import { Difference } from "#schemas/difference.ts"
import type { Json } from "#schemas/kind.ts"
import { WorkSignal } from "#src/engine/Worker.ts"
import {
  type Claimed,
  type Lease,
  priorityPenalty,
  type Recorded,
  type Returned,
  WorkStore
} from "#src/engine/WorkStore.ts"
import { Db, notifications, orUnavailable, repeatable, type Sql } from "./Db.ts"
import { changedSince, wakeLate } from "./waiters.ts"

interface LeasedRow {
  readonly orgId: string
  readonly uid: string
  readonly kind: string
  readonly token: string
  readonly attempt: number
  readonly retryToken: string | null
  readonly lateBy: number
}

interface LoadedRow {
  readonly uid: string
  readonly projectId: string | null
  readonly environment: string | null
  readonly name: string
  readonly parentUid: string | null
  readonly spec: Json
  readonly generation: number
  readonly status: Json | null
  readonly observedGeneration: number
  readonly phase: string
  readonly phaseAge: number
  readonly settled: boolean
  readonly reported: unknown
  readonly deleting: boolean
  readonly paused: Claimed["paused"]
  readonly children: Claimed["children"]
  readonly seen: string
  readonly now: number
}

/** Announcements by NOTIFY. Every reconnection announces as well, for what was missed meanwhile. */
export const signal = Layer.effect(
  WorkSignal,
  Effect.map(Db, ({ engine }) => notifications(engine, "svc_work"))
)

export const layer = Layer.effect(
  WorkStore,
  Effect.gen(function* () {
    const { engine: sql } = yield* Db
    const loadOnce = loader(sql)
    const scope = yield* Effect.scope
    const release = Effect.fnUntraced(function* (leases: ReadonlyArray<Returned>) {
      if (leases.length === 0) return
      yield* repeatable(sql`
          with released as (
            update work w set lease_token = null, lease_until = null,
              due_at = now() - late * interval '1 millisecond',
              rank = now() - late * interval '1 millisecond' + (w.rank - w.due_at)
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
    /** What is leased and cannot be loaded is given back as soon as the store answers: nobody else knows of these leases. */
    const load = (rows: ReadonlyArray<LeasedRow>) =>
      Effect.tapError(loadOnce(rows), () =>
        release(rows.map((row) => ({ ...row, token: BigInt(row.token) }))).pipe(
          Effect.retry({ times: 60, schedule: Schedule.spaced("500 millis") }),
          Effect.ignore,
          Effect.forkIn(scope)
        )
      )

    return WorkStore.of({
      release,

      // Index: work_claim, one short scan for each kind.
      claim: Effect.fnUntraced(function* (rooms, leaseMs) {
        const rows = yield* orUnavailable(sql<LeasedRow>`
          with due as (
            select w.tuple, w.due_at
            from jsonb_to_recordset(${sql.json(rooms)}::jsonb) as k(kind text, room int, "fullOrgs" uuid[], urgent boolean)
            cross join lateral (
              select ctid as tuple, due_at from work
              where kind = k.kind and due_at <= now()
                and rank <= now() + case when k.urgent then interval '0' else interval '60 seconds' end
                and case when k."fullOrgs" = '{}' then true else org_id <> all (k."fullOrgs") end
              order by rank limit k.room for update skip locked
            ) w
            -- Bounds one claim, and tells the planner that it is few rows among many.
            limit 1000
          )
          ${take(sql, leaseMs)}
          -- Locked above, a row stays where it is: no second search for it.
          from due where w.ctid = due.tuple
          returning ${leased(sql)},
            (extract(epoch from now() - due.due_at) * 1000)::float8 as "lateBy"`)
        return yield* load(rows)
      }),

      claimOne: Effect.fnUntraced(function* (orgId, uid, leaseMs) {
        const rows = yield* orUnavailable(sql<LeasedRow>`
          ${take(sql, leaseMs)}
          where w.org_id = ${orgId}::uuid and w.uid = ${uid}::uuid
            and (w.lease_until is null or w.lease_until < now())
          returning ${leased(sql)}, 0::float8 as "lateBy"`)
        return Option.fromUndefinedOr((yield* load(rows))[0])
      }),

      heartbeat: Effect.fnUntraced(function* (leases, leaseMs) {
        if (leases.length === 0) return []
        const kept = yield* repeatable(sql<{ readonly uid: string }>`
          update work w set
            lease_until = now() + ${leaseMs}::float8 * interval '1 millisecond',
            due_at = now() + ${leaseMs}::float8 * interval '1 millisecond',
            rank = now() + ${leaseMs}::float8 * interval '1 millisecond' + (w.rank - w.due_at)
          from ${leaseRows(sql, leases)}
          where w.org_id = l.org_id and w.uid = l.uid and w.lease_token = l.token
          returning w.uid`)
        return matching(leases, kept)
      }),

      record: Effect.fnUntraced(function* (results) {
        const quiet = results.filter((result) => result.change === undefined)
        const changed = results.filter((result) => result.change !== undefined)
        const kept = [
          ...(quiet.length === 0 ? [] : yield* repeatable(recordQuiet(sql, quiet))),
          ...(changed.length === 0 ? [] : yield* repeatable(recordChanged(sql, changed)))
        ]
        const uids = new Set(kept.map((row) => row.uid))
        yield* wakeLate(
          sql,
          changed.filter((result) => uids.has(result.lease.uid))
        )
        return matching(
          results.map((result) => result.lease),
          kept
        )
      }),

      cascade: Effect.fnUntraced(function* (orgId, uid) {
        yield* repeatable(sql`
          with marked as (
            update resource set deletion_requested_at = now(), phase = 'deleting', phase_since = now(),
              revision = nextval('resource_revision'), txid = pg_current_xact_id()
            where org_id = ${orgId}::uuid and parent_uid = ${uid}::uuid and deleted_at is null
              and deletion_requested_at is null
            returning org_id, uid
          ), woken as (
            update work w set again = true,
              due_at = case when w.lease_until > now() then w.due_at else now() end,
              rank = case when w.lease_until > now() then w.due_at else now() end
            from marked where w.org_id = marked.org_id and w.uid = marked.uid
            returning w.uid
          )
          select pg_notify('svc_work', ''), pg_notify('svc_change', ${orgId}::text) from woken limit 1`)
      }),

      nextDueIn: Effect.fnUntraced(function* (kinds) {
        const [row] = yield* orUnavailable(sql<{ readonly ms: number | null }>`
          select (extract(epoch from min(first.due_at) - now()) * 1000)::float8 as ms
          from jsonb_array_elements_text(${sql.json(kinds)}::jsonb) as k(kind)
          cross join lateral (select due_at from work where work.kind = k.kind order by rank limit 8) first`)
        return Option.fromNullishOr(row?.ms)
      }),

      stats: orUnavailable(sql<{ kind: string; depth: number; due: number; oldestDueMs: number }>`
        select kind, count(*)::int as depth, count(*) filter (where due_at <= now())::int as due,
          coalesce(extract(epoch from now() - min(due_at) filter (where due_at <= now())) * 1000, 0)::float8 as "oldestDueMs"
        from work group by kind`)
    })
  })
)

const take = (sql: Sql, leaseMs: number) => sql`
  update work w set
    lease_token = nextval('lease_token'),
    lease_until = now() + ${leaseMs}::float8 * interval '1 millisecond',
    due_at = now() + ${leaseMs}::float8 * interval '1 millisecond',
    rank = now() + ${leaseMs}::float8 * interval '1 millisecond' + (w.rank - w.due_at),
    again = false, waiting_on = null`

const leased = (sql: Sql) => sql`
  w.org_id as "orgId", w.uid, w.kind, w.lease_token::text as token, w.attempt, w.retry_token as "retryToken"`

const leaseRows = (sql: Sql, leases: ReadonlyArray<Lease>) => sql`
  unnest(
    string_to_array(${leases.map((lease) => lease.orgId).join()}, ',')::uuid[],
    string_to_array(${leases.map((lease) => lease.uid).join()}, ',')::uuid[],
    string_to_array(${leases.map((lease) => lease.token).join()}, ',')::bigint[]
  ) as l(org_id, uid, token)`

const matching = (leases: ReadonlyArray<Lease>, kept: ReadonlyArray<{ readonly uid: string }>) => {
  const uids = new Set(kept.map((row) => row.uid))
  return leases.filter((lease) => uids.has(lease.uid))
}

// The engine alone writes these columns: one that does not decode is a fault of the program.
const isPhase = Schema.is(Phase)
const hasPhase = (row: LoadedRow): row is LoadedRow & { readonly phase: Phase } => isPhase(row.phase)
const decodeReported = Schema.decodeUnknownEffect(
  Schema.Struct({ conditions: Schema.Array(Condition), differences: Schema.Array(Difference) })
)
const nothingReported = { conditions: [], differences: [] }

/**
 * Loads leased resources in a statement of its own, after the claim: what it reads is at least as new as the claim,
 * so a change that was folded into the claim is never overlooked.
 */
const loader = (sql: Sql) => {
  const reportedNow = (orgId: string, uid: string) =>
    Effect.flatMap(
      repeatable(sql`
        select conditions, differences from resource where org_id = ${orgId}::uuid and uid = ${uid}::uuid`),
      ([row]) => decodeReported(row ?? nothingReported)
    ).pipe(Effect.orDie)
  return Effect.fnUntraced(function* (leases: ReadonlyArray<LeasedRow>) {
    if (leases.length === 0) return []
    const rows = yield* orUnavailable(sql<LoadedRow>`
      select r.uid, r.project_id as "projectId", r.environment, r.name, r.parent_uid as "parentUid", r.spec,
        r.generation, r.status, r.observed_generation as "observedGeneration", r.phase,
        (extract(epoch from now() - r.phase_since) * 1000)::float8 as "phaseAge",
        r.settled and r.phase = 'ready' and r.observed_generation = r.generation
          and r.deletion_requested_at is null as settled,
        case when not r.settled then
          jsonb_build_object('conditions', r.conditions, 'differences', r.differences) end as reported,
        r.deletion_requested_at is not null as deleting,
        -- Asked once for the whole statement: usually nothing is paused anywhere.
        case when (select exists (select from pause)) then
          (select jsonb_build_object('by', p.paused_by, 'reason', p.reason,
              'endsIn', extract(epoch from p.until - now()) * 1000)
            from pause p
            where (p.until is null or p.until > now()) and (p.scope = 'all' or p.org_id = r.org_id and (
              p.scope = 'organization' or p.scope = 'kind' and p.target = r.kind
              or p.scope = 'resource' and p.target = r.uid::text
              or p.scope = 'project' and p.target in (r.project_id::text, r.uid::text)))
            limit 1)
        end as paused,
        case when r.deletion_requested_at is not null then
          (select jsonb_build_object('count', count(*),
              'notDeleting', count(*) filter (where c.deletion_requested_at is null),
              'first', coalesce(min(c.kind || ' "' || c.name || '"'), ''))
            from resource c where c.org_id = r.org_id and c.parent_uid = r.uid and c.deleted_at is null)
        end as children,
        (select pg_current_snapshot())::text as seen,
        (extract(epoch from now()) * 1000)::float8 as now
      from unnest(
        string_to_array(${leases.map((lease) => lease.orgId).join()}, ',')::uuid[],
        string_to_array(${leases.map((lease) => lease.uid).join()}, ',')::uuid[]
      ) as l(org_id, uid)
      join resource r on r.org_id = l.org_id and r.uid = l.uid and r.deleted_at is null`)
    const byUid = new Map(rows.map((row): [string, LoadedRow] => [row.uid, row]))
    const claimed: Array<Claimed> = []
    for (const lease of leases) {
      const row = byUid.get(lease.uid)
      // Abandoned between the two statements: its queue entry is gone as well.
      if (row === undefined) continue
      // One row that nobody understands must not keep the others from their turn. It rests until its lease ends.
      if (!hasPhase(row)) {
        yield* Effect.logError(`the store holds an unknown phase "${row.phase}"`, { uid: row.uid })
        continue
      }
      claimed.push({
        ...row,
        ...lease,
        token: BigInt(lease.token),
        phase: row.phase,
        // What is settled is reported again only when something is found: it is read then.
        reported:
          row.reported === null
            ? reportedNow(lease.orgId, lease.uid)
            : Effect.orDie(decodeReported(row.reported))
      })
    }
    return claimed
  })
}

/** Nothing changed: only the queue entry is written. */
const recordQuiet = (sql: Sql, results: ReadonlyArray<Recorded>) => sql<{ readonly uid: string }>`
  update work w set
    lease_token = null, lease_until = null, again = false, attempt = 0, last_error = null, waiting_on = null,
    due_at = case when w.again then now() else now() + l.due_in * interval '1 millisecond' end,
    rank = case when w.again then now() else now() + l.ranked * interval '1 millisecond' end
  from unnest(
    string_to_array(${results.map((result) => result.lease.orgId).join()}, ',')::uuid[],
    string_to_array(${results.map((result) => result.lease.uid).join()}, ',')::uuid[],
    string_to_array(${results.map((result) => result.lease.token).join()}, ',')::bigint[],
    string_to_array(${results.map((result) => Math.round(result.dueIn)).join()}, ',')::float8[],
    string_to_array(${results.map((result) => Math.round(result.dueIn) + priorityPenalty[result.priority]).join()}, ',')::float8[]
  ) as l(org_id, uid, token, due_in, ranked)
  where w.org_id = l.org_id and w.uid = l.uid and w.lease_token = l.token
  returning w.uid`

/**
 * Status, history, queue entry, the removal of what is gone and the waking of what waited, in one statement. Only
 * rows whose lease still holds take part; everything else follows from `fenced`.
 */
const recordChanged = (sql: Sql, results: ReadonlyArray<Recorded>) => {
  const input = results.map((result, ord) => ({
    ord,
    org_id: result.lease.orgId,
    uid: result.lease.uid,
    token: String(result.lease.token),
    due_in: result.dueIn,
    penalty: priorityPenalty[result.priority],
    attempt: result.attempt,
    waiting_on: result.waitingOn,
    seen: result.waitingOn === null ? null : result.seen,
    last_error: result.lastError,
    handled: result.handledRetry,
    status: result.change?.status ?? null,
    phase: result.change?.phase,
    conditions: result.change?.conditions,
    differences: result.change?.differences,
    observed: result.change?.observedGeneration,
    settled: result.change?.settled,
    deleting: result.change?.deleting,
    gone: result.change?.gone
  }))
  const events = results.flatMap((result, ord) =>
    (result.change?.events ?? []).map((event, position) => ({ ord, position, ...event }))
  )
  return sql<{ readonly uid: string }>`
    with input as materialized (
      select * from jsonb_to_recordset(${sql.json(input)}::jsonb) as i(
        ord int, org_id uuid, uid uuid, token bigint, due_in float8, penalty float8, attempt int, waiting_on uuid,
        seen pg_snapshot, last_error text, handled text, status jsonb, phase text, conditions jsonb, differences jsonb,
        observed int, settled boolean, deleting boolean, gone boolean)
    ),
    kept as (
      update work w set
        lease_token = null, lease_until = null, again = false, attempt = i.attempt, last_error = i.last_error,
        handled_retry = coalesce(i.handled, w.handled_retry),
        retry_token = case when w.retry_token = i.handled then null else w.retry_token end,
        waiting_on = i.waiting_on,
        due_at = case when w.again or i.soon then now() else now() + i.due_in * interval '1 millisecond' end,
        rank = case when w.again or i.soon then now()
          else now() + (i.due_in + i.penalty) * interval '1 millisecond' end
      from (
        select i.*,
          -- What it waits for changed since it was looked at, here or elsewhere, or a child of it is going.
          exists (select from resource d where d.org_id = i.org_id and d.uid = i.waiting_on
            and ${changedSince(sql)})
          or exists (select from input other where other.uid = i.waiting_on)
          or exists (select from input other join resource c on c.org_id = other.org_id and c.uid = other.uid
            where other.gone and c.parent_uid = i.uid) as soon
        from input i where not gone
      ) i
      where w.org_id = i.org_id and w.uid = i.uid and w.lease_token = i.token
      returning w.org_id, w.uid
    ),
    removed as (
      delete from work w using input i
      where i.gone and w.org_id = i.org_id and w.uid = i.uid and w.lease_token = i.token
      returning w.org_id, w.uid
    ),
    fenced as (select org_id, uid from kept union all select org_id, uid from removed),
    changed as (
      update resource r set
        status = i.status, conditions = i.conditions, differences = i.differences,
        observed_generation = i.observed, settled = i.settled,
        -- Deletion may have been asked for meanwhile; the next run, which is due already, knows of it.
        phase = case when r.deletion_requested_at is not null and not i.deleting then r.phase else i.phase end,
        phase_since = case when r.phase = i.phase or r.deletion_requested_at is not null and not i.deleting
          then r.phase_since else now() end,
        spec = case when i.gone then '{}' else r.spec end,
        deleted_at = case when i.gone then now() end,
        revision = nextval('resource_revision'), txid = pg_current_xact_id()
      from input i join fenced f on f.org_id = i.org_id and f.uid = i.uid
      where r.org_id = i.org_id and r.uid = i.uid
      returning r.org_id, r.uid, r.parent_uid, r.generation, i.ord, i.gone
    ),
    unsealed as (
      delete from secret s using changed c where c.gone and s.org_id = c.org_id and s.uid = c.uid
    ),
    woken as (
      update work w set
        again = true, waiting_on = null,
        due_at = case when w.lease_until > now() then w.due_at else now() end,
        rank = case when w.lease_until > now() then w.due_at else now() end
      from changed c
      where w.org_id = c.org_id and (w.waiting_on = c.uid or c.gone and w.uid = c.parent_uid)
        -- What this statement wrote already saw to itself; a stale result of the batch wrote nothing.
        and not exists (select from fenced f where f.org_id = w.org_id and f.uid = w.uid)
      returning w.uid
    ),
    happened as (
      select c.org_id, c.uid, c.generation, e.position, e.type, e.reason, e.message
      from jsonb_to_recordset(${sql.json(events)}::jsonb) as e(ord int, position int, type text, reason text, message text)
      join changed c on c.ord = e.ord
    ),
    -- A repeat of the newest entry is counted instead of written again.
    folded as (
      update resource_event old set count = old.count + 1, last_at = now()
      from happened h
      where old.org_id = h.org_id and old.uid = h.uid and old.type = h.type and old.reason = h.reason
        and old.message = h.message
        and old.id = (select max(id) from resource_event n where n.org_id = h.org_id and n.uid = h.uid)
      returning old.uid, h.position
    ),
    history as (
      insert into resource_event (org_id, uid, type, reason, message, generation)
      select org_id, uid, type, reason, message, generation from happened h
      where not exists (select from folded f where f.uid = h.uid and f.position = h.position)
      order by h.uid, h.position
    ),
    told as (
      select count(pg_notify('svc_change', org_id::text)) from (select distinct org_id from changed) orgs
      union all
      select count(pg_notify('svc_work', '')) from (select from woken limit 1) any_woken
    )
    select fenced.uid from fenced, (select count(*) from told) all_told`
}
