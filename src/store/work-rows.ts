/** What statements that change resources do with the queue entries of these resources. */
import * as Effect from "effect/Effect"
import type { Fragment } from "effect/sql/Statement"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { repeatable, type Sql } from "./Db.ts"

/** For `update work w set`: due now, or as soon as the reconcile that is under way has ended. */
export const dueNow = (sql: Sql): Fragment => sql`
  again = true,
  due_at = case when w.lease_until > now() then w.due_at else now() end,
  rank = case when w.lease_until > now() then w.due_at else now() end`

/** Has a resource looked at now, for what went on in the background of its reconciles has ended. */
export const wakeReconciler = (
  sql: Sql,
  { orgId, uid }: { readonly orgId: string; readonly uid: string }
): Effect.Effect<void, StoreUnavailable> =>
  Effect.asVoid(
    repeatable(sql`
      with woken as (
        update work w set ${dueNow(sql)} where w.org_id = ${orgId}::uuid and w.uid = ${uid}::uuid returning w.uid
      )
      select pg_notify('svc_work', '') from woken`)
  )

/**
 * A CTE that locks the queue entries of the rows of the CTE `chosen`, to be waited for with {@link afterHeld} before
 * these resources are changed: the engine locks in this order, and in another one each could wait for what the other has.
 * `among`, where it is not said, finds the rows one by one: for sets that are small beside the organization.
 */
export const lockWork = (
  sql: Sql,
  orgId: string,
  chosen: string,
  condition: Fragment,
  among: (sql: Sql, uid: string, chosen: string) => Fragment = oneOf
): Fragment => sql`
  held as materialized (
    select w.uid from work w
    where w.org_id = ${orgId}::uuid and ${condition} and ${among(sql, "w.uid", chosen)}
    order by w.uid for update
  )`
const oneOf = (sql: Sql, uid: string, chosen: string): Fragment =>
  sql`${sql(uid)} in (select uid from ${sql.literal(chosen)})`

/**
 * Whether a row is one of `chosen`, for sets that may be most of what an organization has. It is a test (`is true`), and
 * so looked up in a hash. As a condition it is a join, and of rows that were written a moment ago the planner expects
 * one: it would compare each with each, which takes longer than a statement may.
 */
export const oneOfMany = (sql: Sql, uid: string, chosen: string): Fragment =>
  sql`(${sql(uid)} in (select uid from ${sql.literal(chosen)})) is true`
export const afterLock = (sql: Sql): Fragment => sql`(select count(*) from held) is not null`
