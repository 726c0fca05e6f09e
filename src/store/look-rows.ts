/** What the store does for looks without a lease (`engine/looks.ts`): who is alive, what is kept, and what they found. */
import * as Effect from "effect/Effect"
import { fromStored } from "#schemas/stored-spec.ts"
import {
  type Claimed,
  type Kept,
  type Member,
  noLease,
  priorityPenalty,
  type WorkStore
} from "#src/engine/WorkStore.ts"
import { orUnavailable, repeatable, type Sql } from "./Db.ts"
import { isSettled, pausedBy } from "./work-loading.ts"

type LookStore = Pick<WorkStore["Service"], "join" | "leave" | "kept" | "look" | "wake">

type LookRow = Pick<
  Claimed,
  | "orgId"
  | "uid"
  | "kind"
  | "projectId"
  | "environment"
  | "name"
  | "parentUid"
  | "spec"
  | "generation"
  | "status"
  | "facts"
  | "settled"
  | "paused"
>
/** What a look of something settled need not be told: it is so, or it matters only when something is reported. */
const untold = {
  token: noLease,
  attempt: 0,
  retryToken: null,
  lateBy: 0,
  phase: "ready",
  phaseAge: 0,
  reported: { conditions: [], differences: [] },
  deleting: false,
  children: null,
  seen: "",
  now: 0
} as const

export const lookStore = (sql: Sql): LookStore => {
  return {
    // A process that joins is announced, and so is one whose lease has ended: the others share its slots from then on.
    join: Effect.fnUntraced(function* ({ id, region }, leaseMs) {
      const rows = yield* repeatable(sql<Member>`
        with ended as (
          delete from engine_process where lease_until < now() and id <> ${id}::uuid returning id
        ),
        own as (
          insert into engine_process (id, region, lease_until)
          values (${id}::uuid, ${region}::text, now() + ${leaseMs}::float8 * interval '1 millisecond')
          on conflict (id) do update set lease_until = excluded.lease_until
          returning id, xmax = 0 as is_new
        ),
        told as (
          select count(pg_notify('svc_engine_process', '')) from (
            select id from ended union all select id from own where is_new) changed
        )
        select p.id, p.region from engine_process p, told where p.lease_until >= now() and p.id <> ${id}::uuid
        union all select own.id, ${region}::text from own`)
      return rows
    }),
    leave: (id) =>
      Effect.asVoid(
        repeatable(sql`
          with gone as (delete from engine_process where id = ${id}::uuid returning id)
          select pg_notify('svc_engine_process', '') from gone`)
      ),
    // Index: work_kept.
    kept: (pool, slots) =>
      orUnavailable(sql<Kept>`
        select org_id as "orgId", uid, kind from work
        where kept and pool = ${pool}::text and svc_slot(uid) = any(string_to_array(${slots.join()}, ',')::int[])`),
    look: Effect.fnUntraced(function* (kept) {
      const rows = yield* orUnavailable(sql<LookRow>`
        select r.org_id as "orgId", r.uid, r.kind, r.project_id as "projectId", r.environment, r.name,
          r.parent_uid as "parentUid", r.spec, r.generation, r.status, r.facts,
          ${isSettled(sql)} as settled, ${pausedBy(sql)} as paused
        from unnest(
          string_to_array(${kept.map((one) => one.orgId).join()}, ',')::uuid[],
          string_to_array(${kept.map((one) => one.uid).join()}, ',')::uuid[]
        ) as l(org_id, uid)
        join resource r on r.org_id = l.org_id and r.uid = l.uid and r.deleted_at is null and r.settled
        join work w on w.org_id = l.org_id and w.uid = l.uid and w.kept and w.due_at > now()
          and (w.lease_until is null or w.lease_until < now()) and w.retry_token is null`)
      return rows.map(
        (row): Claimed => ({
          ...untold,
          ...row,
          observedGeneration: row.generation,
          spec: fromStored(row.kind, row.spec)
        })
      )
    }),
    wake: (found) =>
      Effect.asVoid(
        repeatable(sql`
          with woken as (
            update work w set kept = false, due_at = now(), rank = now() + ${priorityPenalty[1]}::float8 * interval '1 millisecond'
            from unnest(
              string_to_array(${found.map((one) => one.orgId).join()}, ',')::uuid[],
              string_to_array(${found.map((one) => one.uid).join()}, ',')::uuid[]
            ) as l(org_id, uid)
            where w.org_id = l.org_id and w.uid = l.uid and w.kept and w.due_at > now()
              and (w.lease_until is null or w.lease_until < now())
            returning w.uid
          )
          select pg_notify('svc_work', '') from woken limit 1`)
      )
  }
}
