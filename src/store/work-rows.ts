/** What statements that change resources do with the queue entries of these resources. */
import type { Fragment } from "effect/sql/Statement"
import type { Sql } from "./Db.ts"

/** For `update work w set`: due now, or as soon as the reconcile that is under way has ended. */
export const dueNow = (sql: Sql): Fragment => sql`
  again = true,
  due_at = case when w.lease_until > now() then w.due_at else now() end,
  rank = case when w.lease_until > now() then w.due_at else now() end`

/**
 * A CTE that locks the queue entries of the rows of the CTE `chosen`, to be waited for with {@link afterHeld} before
 * these resources are changed: the engine locks in this order, and in another one each could wait for what the other has.
 */
export const lockWork = (sql: Sql, orgId: string, chosen: string, condition: Fragment): Fragment => sql`
  held as materialized (
    select w.uid from work w
    where w.org_id = ${orgId}::uuid and ${condition} and w.uid in (select uid from ${sql.literal(chosen)})
    order by w.uid for update
  )`
export const afterLock = (sql: Sql): Fragment => sql`(select count(*) from held) is not null`
