/** What the things of projects cost by day, for those who look. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Db, inOrg, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { usageItems } from "./api.ts"

export interface UsageRecord {
  /** `2026-11-22`, in UTC. */
  readonly day: string
  readonly uid: string
  readonly item: (typeof usageItems)[number]
  readonly kind: string
  readonly name: string
  readonly environment: string | null
  readonly microUsd: number
}

export interface UsageRange {
  /** Days; absent: the first of the month of `to`, and today. */
  readonly from: string | undefined
  readonly to: string | undefined
}

export class BudgetUsage extends Context.Service<
  BudgetUsage,
  {
    /** The newest day first; at most `limit`, after the one that is named. */
    readonly list: (
      orgId: string,
      projectId: string,
      range: UsageRange,
      limit: number,
      after?: Pick<UsageRecord, "day" | "uid" | "item">
    ) => Effect.Effect<ReadonlyArray<UsageRecord>, StoreUnavailable>
  }
>()("svc/budgets/BudgetUsage") {
  static readonly layer = Layer.effect(
    BudgetUsage,
    Effect.map(Db, ({ api: sql }) =>
      BudgetUsage.of({
        // Index: the primary key.
        list: (orgId, projectId, { from = null, to = null }, limit, after) =>
          repeatable(sql<UsageRecord>`
            select day::text as day, uid, item, kind, name, environment, spent::float8 as "microUsd"
            from budget_usage
            where org_id = ${orgId}::uuid and project_uid = ${projectId}::uuid and ${inOrg(sql, orgId)}
              and day >= coalesce(${from}::date, date_trunc('month', coalesce(${to}::date, (now() at time zone 'UTC')::date))::date)
              and day <= coalesce(${to}::date, (now() at time zone 'UTC')::date)
              and ${
                after === undefined
                  ? sql`true`
                  : sql`(day, uid, item) < (${after.day}::date, ${after.uid}::uuid, ${after.item})`
              }
            order by day desc, uid desc, item desc limit ${limit}::int`)
      })
    )
  )
}
