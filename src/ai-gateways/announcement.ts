/**
 * Telling of a gateway's budget, each once a month: `budget.alert` when what was spent passes the threshold, and
 * `budget.exceeded` when it reaches the budget, or a call is refused after the alert. Who sees that it is due says so;
 * the statement that stores the event marks the month, so that of several the first one tells.
 */
import { inOrg, type Sql } from "#src/store/Db.ts"
import type { EventType } from "#src/webhooks/event-types.ts"
import { emission } from "#src/webhooks/events.ts"
import { capOf } from "./ledger-statements.ts"

/** Part of a gateway's budget at which `budget.alert` is sent. */
const alertPercent = 80

const marks = { "budget.alert": "alerted_at", "budget.exceeded": "exceeded_at" } as const
export type BudgetEvent = keyof typeof marks & EventType

interface Month {
  readonly cap: number
  readonly spent: number
  readonly alerted: boolean
  readonly exceeded: boolean
}

const overThreshold = ({ cap, spent }: Month) => spent > 0 && spent * 100 >= cap * alertPercent

/** What is to be told of a month. `refused`: a call was, since what is spent leaves no room for it. */
export const due = (month: Month, refused: boolean): ReadonlyArray<BudgetEvent> => [
  ...(!month.alerted && overThreshold(month) ? ["budget.alert" as const] : []),
  ...(!month.exceeded && overThreshold(month) && (refused || month.spent >= month.cap)
    ? ["budget.exceeded" as const]
    : [])
]

/** `month` is its first day. Nothing happens when it was told of already. */
export const announce = (
  sql: Sql,
  of: {
    readonly orgId: string
    readonly projectId: string
    readonly gateway: string
    readonly month: string
  },
  type: BudgetEvent
) => {
  const { orgId, projectId, gateway, month } = of
  const [gate, mark] = [inOrg(sql, orgId), sql(marks[type])]
  const usd = (nanoUsd: "spent" | "cap") => sql`trim_scale(t.${sql(nanoUsd)}::numeric / 1000000000)`
  return sql`
    with told as (
      update ai_gateway_month m set ${mark} = now() from resource r
      where m.org_id = ${orgId}::uuid and m.gateway_uid = ${gateway}::uuid and m.month = ${month}::date
        and m.${mark} is null and r.org_id = m.org_id and r.uid = m.gateway_uid and ${gate}
      returning m.month, m.spent, ${capOf(sql)} as cap, r.uid, r.name, r.environment
    ),
    ${emission(
      sql,
      {
        orgId,
        projectId,
        type,
        data: sql`(
          select jsonb_build_object('month', to_char(t.month, 'YYYY-MM'),
            'aiGateway', jsonb_build_object('id', t.uid, 'name', t.name, 'environment', t.environment),
            'monthlyBudgetUsd', ${usd("cap")}, 'alertThresholdPercent', ${alertPercent}::int,
            'spentUsd', ${usd("spent")})
          from told t)`
      },
      sql`exists (select from told)`
    )}
    select month from told`
}
