/** Runs and actions as leased rows: claimed organization by organization, and written by the holder of the lease alone. */
import * as Effect from "effect/Effect"
import type { Room } from "#src/loops/leased.ts"
import { orUnavailable, repeatable, type Sql } from "#src/store/Db.ts"

export interface Lease {
  readonly orgId: string
  readonly id: string
  readonly lease: string
}

const columns = {
  maintenance_run: `r.maintenance_uid as "maintenanceUid", r.trigger`,
  maintenance_action: `r.maintenance_uid as "maintenanceUid", r.run_id as "runId", r.finding_id as "findingId", r.remedy,
    r.created_at as "createdAt"`
} as const

export const makeLeasedRows = <Row extends Lease>(sql: Sql, table: keyof typeof columns, leaseMs: number) => {
  const lease = sql`make_interval(secs => ${leaseMs / 1000}::float8)`
  const held = (rows: ReadonlyArray<Lease>) => sql`
    select * from jsonb_to_recordset(${sql.json(rows.map(({ orgId, id, lease }) => ({ orgId, id, lease })))}::jsonb)
      as h("orgId" uuid, id uuid, lease bigint)`
  return {
    /** Index: maintenance_run_turn or maintenance_action_turn; one step for each organization that has some. */
    claim: ({ most, orgs: { holders, others } }: Room<unknown>) =>
      orUnavailable(sql<Row>`
        with recursive waiting as (
          (select org_id, due_at from ${sql(table)} where finished_at is null order by org_id, due_at limit 1)
          union all
          select n.org_id, n.due_at from waiting w cross join lateral (
            select r.org_id, r.due_at from ${sql(table)} r where r.finished_at is null and r.org_id > w.org_id
            order by r.org_id, r.due_at limit 1) n
        ), turn as (
          select w.org_id, coalesce(h.room, ${others}::int) as room
          from waiting w left join jsonb_to_recordset(${sql.json(
            [...holders].map(([org, { held, room }]) => ({ org, held, room }))
          )}::jsonb) as h(org uuid, held int, room int) on h.org = w.org_id
          where w.due_at <= now() and coalesce(h.room, ${others}::int) > 0
          order by coalesce(h.held, 0), w.due_at limit ${most}::int
        ), due as materialized (
          select d.* from turn t cross join lateral (
            select r.org_id, r.id from ${sql(table)} r
            where r.org_id = t.org_id and r.finished_at is null and r.due_at <= now()
            order by r.org_id, r.due_at limit t.room for no key update skip locked) d
          limit ${most}::int
        )
        update ${sql(table)} r set status = 'running', started_at = coalesce(r.started_at, clock_timestamp()),
          attempt = r.attempt + 1, lease_token = nextval('lease_token'), due_at = clock_timestamp() + ${lease}
        from due d where r.org_id = d.org_id and r.id = d.id
        returning r.org_id as "orgId", r.id, r.lease_token::text as lease, r.attempt, ${sql.literal(columns[table])}`),
    renew: (rows: ReadonlyArray<Lease>) =>
      Effect.map(
        repeatable(sql<{ readonly id: string }>`
          with h as materialized (${held(rows)})
          update ${sql(table)} r set due_at = clock_timestamp() + ${lease}
          from h where r.org_id = h."orgId" and r.id = h.id and r.lease_token = h.lease and r.finished_at is null
          returning r.id`),
        (kept): ReadonlySet<string> => new Set(kept.map(({ id }) => id))
      ),
    release: (rows: ReadonlyArray<Lease>) =>
      Effect.asVoid(
        repeatable(sql`
          with h as materialized (${held(rows)})
          update ${sql(table)} r set due_at = clock_timestamp()
          from h where r.org_id = h."orgId" and r.id = h.id and r.lease_token = h.lease and r.finished_at is null`)
      ),
    /** Milliseconds. */
    nextIn: Effect.map(
      repeatable(sql<{ readonly next: number | null }>`
        select (extract(epoch from min(due_at) - clock_timestamp()) * 1000)::float8 as next
        from ${sql(table)} where finished_at is null`),
      ([row]) => row?.next ?? undefined
    )
  }
}
