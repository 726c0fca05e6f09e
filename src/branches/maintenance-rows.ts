/**
 * Branches that something is to be done with, as a leased loop sees them: what is due, under whose lease, and what became
 * of it. What is tried in vain is tried again by and by, ever more rarely, so that a branch that cannot succeed keeps no
 * other from its turn. A row of `branch_try` is a lease, or tells of a try in vain.
 */
import * as Effect from "effect/Effect"
import type { Fragment } from "effect/sql/Statement"
import { storableText } from "#src/storable.ts"
import { Db, repeatable } from "#src/store/Db.ts"

export type Task = "promote" | "callOff" | "collect"

/** A branch that this process is at, and no other process until the lease ends. */
export interface ClaimedBranch {
  readonly orgId: string
  readonly uid: string
  readonly task: Task
  readonly lease: string
}

/** Why a try was in vain: for people. */
export interface Vain {
  readonly code: string
  readonly message: string
  /** Reason of the event that tells of it, once for each code; null: nobody is told. */
  readonly event: string | null
}

export const leaseSeconds = 30
/** Longest time between two tries. */
const mostSeconds = 300
/** Days that the record of an expired or promoted branch is kept. */
const keptDays = 7

export const branchId = ({ orgId, uid }: Pick<ClaimedBranch, "orgId" | "uid">) => `${orgId}/${uid}`

export const makeMaintenanceRows = Effect.gen(function* () {
  const { engine: sql } = yield* Db

  const there = sql`r.kind = 'DatabaseBranch' and r.deletion_requested_at is null and r.deleted_at is null`
  const tasks: ReadonlyArray<{ readonly task: Task; readonly condition: Fragment }> = [
    // Index: resource_branch_waiting.
    {
      task: "promote",
      condition: sql`r.spec -> 'promoteWhenReady' = 'true'::jsonb and r.phase = 'ready'
        and r.status ->> 'state' = 'ready'`
    },
    // Index: resource_branch_lost.
    {
      task: "callOff",
      condition: sql`r.spec ? 'promotedTo' and r.status #>> '{failure,code}' = 'data_lost'`
    },
    // Index: resource_branch_over.
    {
      task: "collect",
      condition: sql`r.status ->> 'state' in ('expired', 'promoted')
        and r.updated_at < now() - make_interval(days => ${keptDays}::int)`
    }
  ]
  const all = (arms: ReadonlyArray<Fragment>) => sql.join(" union all ", false)(arms)
  const row = ({ orgId, uid, lease }: ClaimedBranch) =>
    sql`org_id = ${orgId}::uuid and uid = ${uid}::uuid and lease = ${lease}::bigint`

  return {
    /**
     * Those that have been due the longest. What is done leaves no row of `branch_try` to lock: the branch itself is
     * locked, which makes Postgres look again at one that has changed since the statement began (READ COMMITTED,
     * manual section 13.2.1). So none is begun that another process has done meanwhile.
     */
    claim: (most: number) =>
      repeatable(sql<ClaimedBranch>`
        with due as materialized (${all(
          tasks.map(
            ({ task, condition }) => sql`(
              select r.org_id, r.uid, ${task}::text as task, coalesce(t.due_at, r.created_at) as since
              from resource r left join branch_try t on t.org_id = r.org_id and t.uid = r.uid
              where ${there} and ${condition} and (t.due_at is null or t.due_at <= now())
              order by since limit ${most}::int)`
          )
        )}), chosen as materialized (
          select * from (select distinct on (org_id, uid) * from due order by org_id, uid, task) d
          order by since limit ${most}::int
        ), locked as materialized (
          select c.* from chosen c join resource r on r.org_id = c.org_id and r.uid = c.uid
          where ${there} and case c.task ${sql.join(
            " ",
            false
          )(tasks.map(({ task, condition }) => sql`when ${task}::text then ${condition}`))} end
          for no key update of r skip locked
        ), claimed as (
          insert into branch_try as t (org_id, uid, tries, due_at, lease)
          select org_id, uid, 0, now() + make_interval(secs => ${leaseSeconds}::int), nextval('lease_token')
          from locked order by org_id, uid
          on conflict (org_id, uid) do update set due_at = excluded.due_at, lease = excluded.lease
            where t.due_at <= now()
          returning org_id, uid, lease
        )
        select org_id as "orgId", uid, task, lease::text as lease
        from claimed join locked using (org_id, uid) order by since`),

    /** Answers the ids of those that hold. */
    renew: (held: ReadonlyArray<ClaimedBranch>) =>
      Effect.map(
        repeatable(sql<{ readonly orgId: string; readonly uid: string }>`
          update branch_try t set due_at = now() + make_interval(secs => ${leaseSeconds}::int)
          from jsonb_to_recordset(${sql.json(held.map(({ orgId, uid, lease }) => ({ orgId, uid, lease })))}::jsonb)
            as h("orgId" uuid, uid uuid, lease bigint)
          where t.org_id = h."orgId" and t.uid = h.uid and t.lease = h.lease
          returning t.org_id as "orgId", t.uid`),
        (rows) => new Set(rows.map(branchId))
      ),

    /** Somebody else may begin with it at once. */
    release: (one: ClaimedBranch) =>
      Effect.asVoid(repeatable(sql`update branch_try set lease = null, due_at = now() where ${row(one)}`)),

    /** Where something is still to be done, which this process knows nothing of, it rests. */
    succeeded: (one: ClaimedBranch) =>
      Effect.asVoid(
        repeatable(sql`
          with still as materialized (
            select r.uid from resource r where r.org_id = ${one.orgId}::uuid and r.uid = ${one.uid}::uuid and ${there}
              and (${sql.join(" or ", false)(tasks.map(({ condition }) => sql`(${condition})`))})
          ), resting as (
            update branch_try set lease = null, tries = 0, code = null, message = null,
              due_at = now() + make_interval(secs => ${mostSeconds}::int)
            where ${row(one)} and exists (select from still)
          )
          delete from branch_try where ${row(one)} and not exists (select from still)`)
      ),

    /** Told to people once, and again when the reason is another. */
    failed: (one: ClaimedBranch, { code, message, event }: Vain) =>
      Effect.asVoid(
        repeatable(sql`
          with before as materialized (
            select code from branch_try where ${row(one)}
          ), noted as (
            update branch_try set tries = tries + 1, code = ${code}::text, message = ${storableText(message)}::text,
              lease = null, due_at = now()
                + least(${mostSeconds}::int, 2 ^ least(tries, 12)) * (0.5 + random() / 2) * interval '1 second'
            where ${row(one)} returning uid
          )
          insert into resource_event (org_id, uid, type, reason, message)
          select ${one.orgId}::uuid, uid, 'Warning', ${event}::text, ${storableText(message)}::text from noted
          where ${event}::text is not null and not exists (select from before where code = ${code}::text)`)
      ),

    /** Milliseconds until the first is due, or its lease ends; undefined: there is none. */
    nextIn: Effect.map(
      repeatable(sql<{ readonly next: number | null }>`
        select (extract(epoch from min(due) - now()) * 1000)::float8 as next from (${all(
          tasks.map(
            ({ condition }) => sql`
              select coalesce(t.due_at, now()) as due
              from resource r left join branch_try t on t.org_id = r.org_id and t.uid = r.uid
              where ${there} and ${condition}`
          )
        )}) w`),
      ([found]) => found?.next ?? undefined
    )
  }
})
