/**
 * Counts what runs on and costs something, by the hour (UTC), into the budgets of its projects: servers by their size
 * and number, instances of apps by what they may use, the servers' disk, what backups take, and calls of AI gateways. From
 * when to when a server had a size and an instance ran is in `metered_period`, which triggers of the store keep.
 * Executions settle when they end, by themselves.
 *
 * The row of an organization says until when everything is counted. It moves on in the transaction that counts, so each
 * hour is counted once, whoever does it and whoever is killed; hours of an outage are counted after it. A step ends with
 * the day, so that every amount is of one day and one month.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { AiGateway } from "#schemas/ai-gateway.ts"
import { Cache } from "#schemas/cache.ts"
import { Database } from "#schemas/database.ts"
import { DatabaseBranch } from "#schemas/database-branch.ts"
import { GatewayUsage } from "#src/ai-gateways/GatewayUsage.ts"
import { Ledger } from "#src/backups/Ledger.ts"
import { Catalog } from "#src/catalog/Catalog.ts"
import { periodic } from "#src/loops/periodic.ts"
import { CurrentMetrics, type Measured } from "#src/metrics/CurrentMetrics.ts"
import { Db, orUnavailable, repeatable, type Sql, transaction } from "#src/store/Db.ts"
import { countSpent } from "./spending.ts"

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
  const { databases, caches, apps, disk, backups } = yield* Catalog
  const ledger = yield* Ledger
  const gateways = yield* GatewayUsage
  const metrics = yield* CurrentMetrics
  const prices = {
    [Database.name]: microUsdPerHour(databases),
    [DatabaseBranch.name]: microUsdPerHour(databases),
    [Cache.name]: microUsdPerHour(caches)
  }
  const instance = {
    cpu: priceOf(apps.perVcpuSecondUsd * 3_600),
    mib: priceOf(apps.perMibSecondUsd * 3_600)
  }
  const perGibMonth = { disk: priceOf(disk.perGibMonthUsd), backups: priceOf(backups.perGibMonthUsd) }

  return Effect.fn("metering.step")(function* (orgId: string) {
    const step = Effect.gen(function* () {
      // By a statement of its own: what is read after it has everything that the step before it stored.
      const [organization] = yield* sql<{ readonly since: string; readonly uids: ReadonlyArray<string> }>`
        select (metered_until at time zone 'UTC')::date::text as since,
          array(select distinct uid from metered_period p where p.org_id = ${orgId}::uuid and app_uid is null)::text[] as uids
        from metering_organization
        where org_id = ${orgId}::uuid and metered_until < date_trunc('hour', now(), 'UTC') for update skip locked`
      if (organization === undefined) return false
      const { since, uids } = organization
      const rows = yield* count(sql, orgId, {
        prices,
        instance,
        perGibMonth,
        used: diskUsed(yield* metrics.of(orgId, uids)),
        stored: yield* ledger.storedBytes(orgId),
        calls: yield* gateways.daysSince(orgId, since)
      })
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

const diskUsed = (measured: ReadonlyMap<string, ReadonlyArray<Measured>>) =>
  [...measured].flatMap(([uid, of]) => {
    const bytes = of.flatMap(({ values }) => values["disk.used_bytes"] ?? [])
    return bytes.length === 0 ? [] : [{ uid, bytes: Math.max(...bytes) }]
  })

const microUsdPerHour = (prices: Readonly<Record<string, number>>) =>
  Object.fromEntries(Object.entries(prices).map(([sku, usd]) => [sku, priceOf(usd)]))

/** Millionths of a US dollar with fractions, without what binary ones add at the end: that would be rounded up. */
const priceOf = (usd: number): number => Number((usd * 1_000_000).toPrecision(12))

interface Inputs {
  /** By kind and size, for an hour of one server. */
  readonly prices: Readonly<Record<string, Readonly<Record<string, number>>>>
  /** For an hour of one instance of an app: of a whole processor, and of a MiB of memory. */
  readonly instance: { readonly cpu: number; readonly mib: number }
  readonly perGibMonth: { readonly disk: number; readonly backups: number }
  readonly used: ReadonlyArray<{ readonly uid: string; readonly bytes: number }>
  readonly stored: ReadonlyArray<{ readonly uid: string; readonly bytes: number }>
  readonly calls: ReadonlyArray<{ readonly uid: string; readonly day: string; readonly microUsd: number }>
}

/**
 * Moves the organization on by a step, stores what things cost in it, and answers the sums by project and month: one row
 * without an amount if nothing cost anything. What costs little is rounded up.
 */
const count = (
  sql: Sql,
  orgId: string,
  { prices, instance, perGibMonth, used, stored, calls }: Inputs
) => sql<Counted>`
  with step as materialized (
    select metered_until as since, least(date_trunc('hour', now(), 'UTC'),
      date_trunc('day', metered_until, 'UTC') + interval '1 day') as until
    from metering_organization where org_id = ${orgId}::uuid
  ), moved as (
    update metering_organization m set metered_until = s.until from step s where m.org_id = ${orgId}::uuid
  ), over as (
    delete from metered_period p using step s where p.org_id = ${orgId}::uuid and p.until <= s.until
  ), period as (
    select p.project_uid, coalesce(p.app_uid, p.uid) as uid, p.kind, p.environment, p.name, p.since,
      (s.since at time zone 'UTC')::date as day, case when p.app_uid is null then 'server' else 'instances' end as item,
      coalesce(p.cpus * ${instance.cpu}::numeric + p.memory_mb * ${instance.mib}::numeric,
        p.servers * (${sql.json(prices)}::jsonb -> p.kind ->> p.sku)::numeric) as "perHour",
      extract(epoch from least(p.until, s.until) - greatest(p.since, s.since)) / 3600 as hours
    from step s join metered_period p on p.org_id = ${orgId}::uuid
      and p.since < s.until and (p.until is null or p.until > s.since)
  ), lived as (
    -- Its name may have changed in between.
    select project_uid, uid, kind, environment, day, item, (array_agg(name order by since desc))[1] as name,
      sum(hours) as hours, sum(ceil(hours * "perHour"))::bigint as spent
    from period group by 1, 2, 3, 4, 5, 6
  ), cost as materialized (
    select project_uid, uid, kind, environment, name, day, item, spent from lived
    union all
    select l.project_uid, l.uid, l.kind, l.environment, l.name, l.day, b.item,
      ceil(l.hours * b.bytes * (${sql.json(perGibMonth)}::jsonb ->> b.item)::numeric
        / (${gib}::numeric * ${hoursOfMonth}::int))::bigint
    from lived l join (
      select uid, bytes, 'disk' as item from jsonb_to_recordset(${sql.json(used)}::jsonb) as u(uid uuid, bytes numeric)
      union all
      select uid, bytes, 'backups' from jsonb_to_recordset(${sql.json(stored)}::jsonb) as u(uid uuid, bytes numeric)
    ) b on b.uid = l.uid
    union all
    -- Calls are counted as they end, by day: what of a day is not in the budget yet.
    select r.project_id, r.uid, r.kind, r.environment, r.name, c.day, 'calls',
      greatest(c."microUsd" - coalesce(k.spent, 0), 0)
    from jsonb_to_recordset(${sql.json(calls)}::jsonb) as c(uid uuid, day date, "microUsd" bigint)
    join resource r on r.org_id = ${orgId}::uuid and r.uid = c.uid and r.project_id is not null
    left join budget_usage k on k.org_id = r.org_id and k.project_uid = r.project_id and k.day = c.day
      and k.uid = r.uid and k.item = 'calls'
  ), stored as (
    insert into budget_usage as b (org_id, project_uid, day, uid, item, kind, environment, name, spent)
    select ${orgId}::uuid, project_uid, day, uid, item, kind, environment, name, spent from cost where spent > 0
    on conflict (org_id, project_uid, day, uid, item) do update set spent = b.spent + excluded.spent,
      name = excluded.name
  )
  select project_uid as "projectId", to_char(day, 'YYYY-MM-01') as month, sum(spent)::float8 as "microUsd"
  from cost where spent > 0 group by 1, 2 order by 1, 2`

/** Organizations in which nothing costs anything by the hour need no step of their own. */
const skipIdle = (sql: Sql) => sql`
  update metering_organization m set metered_until = date_trunc('hour', now(), 'UTC')
  where m.metered_until < date_trunc('hour', now(), 'UTC')
    and not exists (select from metered_period p where p.org_id = m.org_id)
    and not exists (select from resource r where r.org_id = m.org_id and r.kind = ${AiGateway.name}
      and r.deleted_at is null)`

/** One look at all organizations that are behind. */
const round = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const meter = yield* makeMeter
  return Effect.gen(function* () {
    yield* repeatable(skipIdle(sql))
    for (;;) {
      // Index: metering_organization_next.
      const behind = yield* repeatable(sql<{ readonly orgId: string }>`
        select org_id as "orgId" from metering_organization
        where metered_until < date_trunc('hour', now(), 'UTC') order by metered_until limit ${batch}::int`)
      // One that cannot be counted keeps no other from it.
      const moved = yield* Effect.forEach(behind, ({ orgId }) =>
        Effect.catch(meter(orgId), (error) =>
          Effect.as(
            Effect.logWarning("could not count what an organization uses; trying again", { orgId }, error),
            false
          )
        )
      )
      // What others count at this moment is not waited for.
      if (!moved.includes(true)) return
    }
  })
})

export const layer = Layer.effectDiscard(
  Effect.flatMap(round, (one) => periodic({ does: "count what things cost", every: "1 minute" }, one))
)
