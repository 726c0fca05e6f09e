/** What statements that spend money have in common: the budget in force, and the month in which it is counted and told of. */
import type { Fragment } from "effect/sql/Statement"
import { inOrg, type Sql } from "#src/store/Db.ts"
import { announcement } from "./announcement.ts"

interface Project {
  readonly orgId: string
  readonly projectId: string
}

/**
 * The CTE `budget`. It is held until the statement's end: no other budget is in force before what was begun under this one
 * is counted.
 */
export const inForce = (sql: Sql, { orgId, projectId }: Project): Fragment => sql`
  budget as materialized (
    select monthly_cap, alert_percent, hard_stop from project_budget
    where org_id = ${orgId}::uuid and project_uid = ${projectId}::uuid and ${inOrg(sql, orgId)} for share
  )`

/** Assignments that mark a month `m` as told of, once so much is spent in it. */
export const marks = (told: ReturnType<typeof announcement>, spent: Fragment, sql: Sql): Fragment => sql`
  alert_id = coalesce(m.alert_id, ${told.alertId(spent)}),
  exceeded_id = coalesce(m.exceeded_id, ${told.exceededId(spent)})`

/**
 * The CTE `counted` and those that tell of it: adds the row (`month`, `spent`, `reserved`) of the CTE `from` to its month,
 * whose reservations it takes the place of. It takes the CTE `budget`.
 */
export const counted = (sql: Sql, { orgId, projectId }: Project, from: string): Fragment => {
  const told = announcement(sql, orgId, projectId)
  return sql`
    counted as (
      insert into budget_month as m (org_id, project_uid, month, spent, alert_id, exceeded_id)
      select ${orgId}::uuid, ${projectId}::uuid, s.month, s.spent, ${told.alertId(sql`s.spent`)},
        ${told.exceededId(sql`s.spent`)}
      from ${sql(from)} s
      on conflict (org_id, project_uid, month) do update set spent = m.spent + excluded.spent,
        reserved = m.reserved - (select reserved from ${sql(from)}), ${marks(told, sql`m.spent + excluded.spent`, sql)}
      returning month, spent, alert_id, exceeded_id
    ),
    ${told.emissions("counted")}`
}

export interface Spending extends Project {
  /** Its first day: `2026-11-01`. */
  readonly month: string
  readonly microUsd: number
}

/** Adds what was metered to the month of a project, which may be gone by now. */
export const countSpent = (sql: Sql, spending: Spending) => {
  const { orgId, projectId, month, microUsd } = spending
  return sql`
    with ${inForce(sql, spending)},
    metered as (
      select ${month}::date as month, ${microUsd}::bigint as spent, 0::bigint as reserved
      where exists (select from resource r where r.org_id = ${orgId}::uuid and r.uid = ${projectId}::uuid)
    ), ${counted(sql, spending, "metered")}
    select month from counted`
}
