/** What gateways have spent, and on what, for those who look. Amounts are whole billionths of a US dollar. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Db, inOrg, repeatable, type Sql } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { noKey, thisMonth } from "./ledger-statements.ts"

interface Sums {
  readonly requests: number
  readonly inputTokens: number
  readonly outputTokens: number
  readonly spent: number
}

export interface MonthUsage extends Sums {
  /** Its first moment, in UTC. */
  readonly month: Date
  /** Held for calls under way. */
  readonly reserved: number
}

/** Of this month, most expensive first; days in their order. */
export interface UsageParts {
  readonly models: ReadonlyArray<Sums & { readonly model: string }>
  /** Null: apps, with the token of their environment. */
  readonly keys: ReadonlyArray<Sums & { readonly keyId: string | null; readonly name: string | null }>
  /** `2026-11-22` */
  readonly days: ReadonlyArray<Sums & { readonly date: string }>
}

export interface CallRecord {
  /** Of version 7: newer calls have larger ids. */
  readonly id: string
  readonly keyId: string | null
  readonly model: string
  readonly upstream: string | null
  readonly status: number | null
  readonly inputTokens: number
  readonly outputTokens: number
  readonly estimated: boolean
  readonly cost: number
  readonly latencyMs: number | null
  readonly endedAt: Date
}

export class GatewayUsage extends Context.Service<
  GatewayUsage,
  {
    /** The current month of each of these gateways, by uid. */
    readonly months: (
      orgId: string,
      gateways: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyMap<string, MonthUsage>, StoreUnavailable>
    /** What the gateways of an organization have spent since the day before yesterday, by day, rounded up to millionths. */
    readonly recentDays: (
      orgId: string
    ) => Effect.Effect<
      ReadonlyArray<{ readonly gatewayUid: string; readonly day: string; readonly microUsd: number }>,
      StoreUnavailable
    >
    readonly parts: (orgId: string, gateway: string) => Effect.Effect<UsageParts, StoreUnavailable>
    /** Newest first, at most `limit`, before the one with the id `before`. */
    readonly calls: (
      orgId: string,
      gateway: string,
      limit: number,
      before?: string
    ) => Effect.Effect<ReadonlyArray<CallRecord>, StoreUnavailable>
  }
>()("svc/ai-gateways/GatewayUsage") {
  static readonly layer = Layer.effect(
    GatewayUsage,
    Effect.gen(function* () {
      const { api: sql, engine } = yield* Db
      return GatewayUsage.of({
        months: Effect.fn("GatewayUsage.months")(function* (orgId, gateways) {
          if (gateways.length === 0) return new Map()
          const rows = yield* repeatable(sql<MonthUsage & { readonly gateway: string }>`
            select i.uid as gateway, ${thisMonth(sql)}::timestamptz as month,
              coalesce(m.requests, 0)::float8 as requests, coalesce(m.input_tokens, 0)::float8 as "inputTokens",
              coalesce(m.output_tokens, 0)::float8 as "outputTokens", coalesce(m.spent, 0)::float8 as spent,
              coalesce(m.reserved, 0)::float8 as reserved
            from jsonb_array_elements_text(${sql.json(gateways)}::jsonb) as i(uid)
            left join ai_gateway_month m on m.org_id = ${orgId}::uuid and m.gateway_uid = i.uid::uuid
              and m.month = ${thisMonth(sql)}
            where ${inOrg(sql, orgId)}`)
          return new Map(rows.map(({ gateway, ...usage }) => [gateway, usage]))
        }),
        // Index: the primary key of ai_gateway_usage.
        recentDays: (orgId) =>
          repeatable(engine<{ readonly gatewayUid: string; readonly day: string; readonly microUsd: number }>`
            select gateway_uid as "gatewayUid", day::text as day, ceil(sum(spent) / 1000)::float8 as "microUsd"
            from ai_gateway_usage
            where org_id = ${orgId}::uuid and day >= (now() at time zone 'UTC')::date - 2
            group by gateway_uid, day`),
        parts: Effect.fn("GatewayUsage.parts")(function* (orgId, gateway) {
          // Index: the primary key of ai_gateway_usage, which holds a row for each day, model and key.
          const rows = yield* repeatable(sql<Part>`
            with used as materialized (
              select u.day, u.model, u.gateway_key, u.requests, u.input_tokens, u.output_tokens, u.spent
              from ai_gateway_usage u
              where u.org_id = ${orgId}::uuid and u.gateway_uid = ${gateway}::uuid and ${inOrg(sql, orgId)}
                and u.day >= ${thisMonth(sql)} and u.day < ${thisMonth(sql)} + interval '1 month'
            )
            select u.day::text as date, u.model, u.gateway_key as "keyId", ${sums(sql)},
              case when u.gateway_key is not null then (select k.name from ai_gateway_key k
                where k.org_id = ${orgId}::uuid and k.id = u.gateway_key and ${inOrg(sql, orgId)}) end as name
            from used u group by grouping sets ((u.day), (u.model), (u.gateway_key))
            order by u.day, sum(u.spent) desc, u.model, u.gateway_key`)
          return {
            days: rows.flatMap(({ date, model: _, keyId: __, name: ___, ...sums }) =>
              date === null ? [] : [{ date, ...sums }]
            ),
            models: rows.flatMap(({ date: _, model, keyId: __, name: ___, ...sums }) =>
              model === null ? [] : [{ model, ...sums }]
            ),
            keys: rows.flatMap(({ date: _, model: __, keyId, name, ...sums }) =>
              keyId === null ? [] : [{ keyId: keyId === noKey ? null : keyId, name, ...sums }]
            )
          }
        }),
        // Index: the primary key of ai_gateway_request.
        calls: Effect.fn("GatewayUsage.calls")(function* (orgId, gateway, limit, before) {
          return yield* repeatable(sql<CallRecord>`
            select id, gateway_key as "keyId", model, upstream, status, input_tokens::float8 as "inputTokens",
              output_tokens::float8 as "outputTokens", estimated, cost::float8 as cost, latency_ms as "latencyMs",
              ended_at as "endedAt"
            from ai_gateway_request
            where org_id = ${orgId}::uuid and gateway_uid = ${gateway}::uuid and ${inOrg(sql, orgId)}
              and (${before ?? null}::uuid is null or id < ${before ?? null}::uuid)
            order by id desc limit ${limit}::int`)
        })
      })
    })
  )
}

interface Part extends Sums {
  readonly date: string | null
  readonly model: string | null
  readonly keyId: string | null
  readonly name: string | null
}

const sums = (sql: Sql) => sql`
  sum(u.requests)::float8 as requests, sum(u.input_tokens)::float8 as "inputTokens",
  sum(u.output_tokens)::float8 as "outputTokens", sum(u.spent)::float8 as spent`
