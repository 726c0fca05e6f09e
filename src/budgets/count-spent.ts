/** Adds what was metered to the month of a project, and tells of it as of everything that is spent. */
import type { Sql } from "#src/store/Db.ts"
import { announcement } from "./announcement.ts"

export interface Spending {
  readonly orgId: string
  readonly projectId: string
  /** Its first day: `2026-11-01`. */
  readonly month: string
  readonly microUsd: number
}

export const countSpent = (sql: Sql, { orgId, projectId, month, microUsd }: Spending) => {
  const told = announcement(sql, orgId, projectId)
  return sql`
    with budget as materialized (
      select monthly_cap, alert_percent, hard_stop from project_budget
      where org_id = ${orgId}::uuid and project_uid = ${projectId}::uuid for share
    ), counted as (
      insert into budget_month as m (org_id, project_uid, month, spent, alert_id, exceeded_id)
      values (${orgId}::uuid, ${projectId}::uuid, ${month}::date, ${microUsd}::bigint,
        ${told.alertId(sql`${microUsd}::bigint`)}, ${told.exceededId(sql`${microUsd}::bigint`)})
      on conflict (org_id, project_uid, month) do update set spent = m.spent + excluded.spent,
        alert_id = coalesce(m.alert_id, ${told.alertId(sql`m.spent + excluded.spent`)}),
        exceeded_id = coalesce(m.exceeded_id, ${told.exceededId(sql`m.spent + excluded.spent`)})
      returning month, spent, alert_id, exceeded_id
    ),
    ${told.emissions("counted")}
    select month from counted`
}
