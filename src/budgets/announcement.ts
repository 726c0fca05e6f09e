/**
 * Telling of a budget: `budget.alert` when what was spent passes the threshold and `budget.exceeded` when it reaches the
 * cap, each once a month. The statement that counts the money marks the month with an id of its own and stores the event;
 * whose mark is there already has been told of.
 */
import { randomUUIDv7 } from "node:crypto"
import type { Fragment } from "effect/sql/Statement"
import type { Sql } from "#src/store/Db.ts"
import type { EventType } from "#src/webhooks/event-types.ts"
import { emission } from "#src/webhooks/events.ts"

/** Parts of a statement with a CTE `budget`, the budget in force. */
export const announcement = (sql: Sql, orgId: string, projectId: string) => {
  const id = randomUUIDv7()
  const budget = (column: string) => sql`(select ${sql(column)} from budget)`
  const usd = (microUsd: Fragment) => sql`trim_scale(${microUsd}::numeric / 1000000)`

  const tell = (type: EventType, mark: string, counted: string) =>
    emission(
      sql,
      {
        orgId,
        projectId,
        type,
        data: sql`(
          select jsonb_build_object('month', to_char(c.month, 'YYYY-MM'), 'monthlyCapUsd', ${usd(budget("monthly_cap"))},
            'alertThresholdPercent', ${budget("alert_percent")}, 'hardStop', ${budget("hard_stop")},
            'spentUsd', ${usd(sql`c.spent`)})
          from ${sql(counted)} c)`
      },
      sql`exists (select from ${sql(counted)} c where c.${sql(mark)} = ${id}::uuid)`,
      `${mark}_`
    )

  return {
    /** The mark of a month in which so much is spent; null: there is nothing to tell. */
    alertId: (spent: Fragment): Fragment => sql`
      case when ${spent} > 0 and (${spent}) * 100 >= ${budget("monthly_cap")} * ${budget("alert_percent")}
        then ${id}::uuid end`,
    exceededId: (spent: Fragment): Fragment => sql`
      case when ${spent} > 0 and ${spent} >= ${budget("monthly_cap")} then ${id}::uuid end`,
    /** CTEs. `counted` is the one that answers the marked month. */
    emissions: (counted: string): Fragment => sql`
      ${tell("budget.alert", "alert_id", counted)},
      ${tell("budget.exceeded", "exceeded_id", counted)}`
  }
}
