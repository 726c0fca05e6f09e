/**
 * Counts what runs on and costs something, by the hour (UTC), into the budgets of its projects: servers by their size
 * and number, what backups take, and calls of AI gateways. Executions settle when they end, by themselves.
 *
 * The row of an organization says until when everything is counted. It moves on in the transaction that counts, so each
 * hour is counted once, whoever does it and whoever is killed; hours of an outage are counted after it. A step ends with
 * the day, so that every amount is of one day and one month.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Cache } from "#schemas/cache.ts"
import { Database } from "#schemas/database.ts"
import { DatabaseBranch } from "#schemas/database-branch.ts"
import { GatewayUsage } from "#src/ai-gateways/GatewayUsage.ts"
import { Ledger } from "#src/backups/Ledger.ts"
import { Catalog } from "#src/catalog/Catalog.ts"
import { periodic } from "#src/loops/periodic.ts"
import { Db, orUnavailable, repeatable, type Sql, transaction } from "#src/store/Db.ts"
import { countSpent } from "./count-spent.ts"

/** Organizations of one look. */
const batch = 100
const gib = 1024 ** 3
/** In a month, on average. */
const hoursOfMonth = 730

interface Counted {
  readonly projectId: string
  /** `2026-11-01` */
  readonly month: string
  readonly microUsd: number
}

/** One step of one organization; false: there was nothing to count, or somebody else counts it. */
export const makeMeter = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const { databases, caches, backups } = yield* Catalog
  const ledger = yield* Ledger
  const gateways = yield* GatewayUsage
  const prices = {
    [Database.name]: microUsdPerHour(databases),
    [DatabaseBranch.name]: microUsdPerHour(databases),
    [Cache.name]: microUsdPerHour(caches)
  }
  const perGibMonth = backups.perGibMonthUsd * 1_000_000

  return Effect.fn("metering.step")(function* (orgId: string) {
    const stored = yield* ledger.storedBytes(orgId)
    const calls = yield* gateways.recentDays(orgId)
    const step = Effect.gen(function* () {
      const rows = yield* count(sql, orgId, { prices, perGibMonth, stored, calls })
      const [first] = rows
      if (first === undefined) return false
      yield* Effect.forEach(
        rows.filter(({ microUsd }) => microUsd > 0),
        ({ projectId, month, microUsd }) => countSpent(sql, { orgId, projectId, month, microUsd }),
        { discard: true }
      )
      return true
    })
    return yield* orUnavailable(transaction(sql, step))
  })
})

const microUsdPerHour = (prices: Readonly<Record<string, number>>) =>
  Object.fromEntries(Object.entries(prices).map(([sku, usd]) => [sku, usd * 1_000_000]))

interface Inputs {
  /** By kind and size, for an hour of one server. */
  readonly prices: Readonly<Record<string, Readonly<Record<string, number>>>>
  readonly perGibMonth: number
  readonly stored: ReadonlyArray<{ readonly databaseUid: string; readonly bytes: number }>
  readonly calls: ReadonlyArray<{
    readonly gatewayUid: string
    readonly day: string
    readonly microUsd: number
  }>
}

/**
 * Moves the organization on by a step, stores what things cost in it, and answers the sums by project and month: one row
 * without an amount if nothing cost anything, none if there was no step. What costs little is rounded up.
 */
const count = (sql: Sql, orgId: string, { prices, perGibMonth, stored, calls }: Inputs) => sql<Counted>`
  with step as materialized (
    select metered_until as since, least(date_trunc('hour', now(), 'UTC'),
      date_trunc('day', metered_until, 'UTC') + interval '1 day') as until
    from metering_organization
    where org_id = ${orgId}::uuid and metered_until < date_trunc('hour', now(), 'UTC') for update skip locked
  ), moved as (
    update metering_organization m set metered_until = s.until from step s where m.org_id = ${orgId}::uuid
  ), used as (
    select r.project_id, r.uid, r.kind, r.environment, r.name, (s.since at time zone 'UTC')::date as day, r.spec,
      extract(epoch from least(r.deletion_requested_at, s.until) - greatest(r.created_at, s.since)) / 3600 as hours
    from step s join resource r on r.org_id = ${orgId}::uuid and r.project_id is not null
      and r.created_at < s.until and (r.deletion_requested_at is null or r.deletion_requested_at > s.since)
    where r.kind = any(${[Database.name, DatabaseBranch.name, Cache.name]}::text[])
  ), cost as materialized (
    select project_id, uid, kind, environment, name, day, 'server' as item,
      ceil(hours * (1 + coalesce((spec->>'replicas')::int, 0))
        * (${sql.json(prices)}::jsonb -> kind ->> (spec->>'sku'))::numeric)::bigint as spent
    from used
    union all
    select u.project_id, u.uid, u.kind, u.environment, u.name, u.day, 'backups',
      ceil(u.hours * b.bytes * ${perGibMonth}::float8::numeric / (${gib}::numeric * ${hoursOfMonth}::int))::bigint
    from used u join jsonb_to_recordset(${sql.json(stored)}::jsonb) as b("databaseUid" uuid, bytes numeric)
      on b."databaseUid" = u.uid
    union all
    -- Calls are counted as they end, by day: what of a day is not in the budget yet.
    select r.project_id, r.uid, r.kind, r.environment, r.name, c.day, 'calls',
      greatest(c."microUsd" - coalesce(k.spent, 0), 0)
    from step s cross join jsonb_to_recordset(${sql.json(calls)}::jsonb) as c("gatewayUid" uuid, day date, "microUsd" bigint)
    join resource r on r.org_id = ${orgId}::uuid and r.uid = c."gatewayUid" and r.project_id is not null
    left join budget_usage k on k.org_id = r.org_id and k.project_uid = r.project_id and k.day = c.day
      and k.uid = r.uid and k.item = 'calls'
  ), stored as (
    insert into budget_usage as b (org_id, project_uid, day, uid, item, kind, environment, name, spent)
    select ${orgId}::uuid, project_id, day, uid, item, kind, environment, name, spent from cost where spent > 0
    on conflict (org_id, project_uid, day, uid, item) do update set spent = b.spent + excluded.spent,
      name = excluded.name
  )
  select c.project_id as "projectId", to_char(c.day, 'YYYY-MM-01') as month, coalesce(sum(c.spent), 0)::float8 as "microUsd"
  from step s left join cost c on true
  group by c.project_id, to_char(c.day, 'YYYY-MM-01') order by 1, 2`

/** One look at all organizations that are behind. */
const round = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const meter = yield* makeMeter
  return Effect.gen(function* () {
    for (;;) {
      // Index: metering_organization_next.
      const behind = yield* repeatable(sql<{ readonly orgId: string }>`
        select org_id as "orgId" from metering_organization
        where metered_until < date_trunc('hour', now(), 'UTC') order by metered_until limit ${batch}::int`)
      const moved = yield* Effect.forEach(behind, ({ orgId }) => meter(orgId))
      // What others count at this moment is not waited for.
      if (!moved.includes(true)) return
    }
  })
})

export const layer = Layer.effectDiscard(
  Effect.flatMap(round, (one) => periodic({ does: "count what things cost", every: "1 minute" }, one))
)
