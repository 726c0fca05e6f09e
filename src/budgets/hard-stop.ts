import type { Fragment } from "effect/sql/Statement"
import { inOrg, type Sql } from "#src/store/Db.ts"

/**
 * Whether the project's budget stops what would cost more: all of the month's money is spent or promised, and it stops hard.
 * The store asks the same when something is made that costs by the hour (`budget_admits` in the migrations).
 */
export const hardStopReached = (sql: Sql, orgId: string, projectId: Fragment): Fragment => sql`exists (
  select from project_budget b
  left join budget_month bm on bm.org_id = b.org_id and bm.project_uid = b.project_uid
    and bm.month = date_trunc('month', now() at time zone 'UTC')::date
  where b.org_id = ${orgId}::uuid and b.project_uid = ${projectId} and b.hard_stop
    and coalesce(bm.spent + bm.reserved, 0) >= b.monthly_cap and ${inOrg(sql, orgId)})`
