/** What is stored of an environment's measurements in a stretch of time: sums, and what is not in them yet as it came. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Db, inOrg, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface Wanted {
  readonly orgId: string
  readonly projectId: string
  readonly environmentUid: string
  /** The beginning of an hour (UTC). */
  readonly from: Date
  /** The beginning of the first hour that is not wanted. */
  readonly until: Date
  /** Position in `devices`. */
  readonly device: number | undefined
  readonly route: string | undefined
}

/** Sums of a day, for all routes or for one. */
export interface DaySums {
  readonly day: Date
  readonly route: string
  /** By hour and metric, where only some of the day's hours are wanted or all of them apart. */
  readonly hours: Uint8Array | null
  /** By metric. */
  readonly total: Uint8Array | null
}

/** A batch that is not in the sums yet. */
export interface Recent {
  /** Milliseconds since 1970. */
  readonly at: ReadonlyArray<number>
  readonly metric: ReadonlyArray<number>
  readonly value: ReadonlyArray<number>
  readonly routes: ReadonlyArray<string>
  readonly device: ReadonlyArray<number>
}

export interface Found {
  readonly sums: ReadonlyArray<DaySums>
  readonly recent: ReadonlyArray<Recent>
}

/** Routes that a report tells of: those with the most measurements. */
export const mostRoutesTold = 50

/** What a report reads beside the sums, oldest first: of what comes faster, it tells once that is summed up. */
const mostRecent = { batches: 10_000, events: 50_000 }

type Row =
  | (DaySums & { readonly at: null })
  | (Recent & { readonly day: null; readonly hours: null; readonly total: null })

const isRecent = (row: Row): row is Extract<Row, { readonly day: null }> => row.at !== null

export class Measurements extends Context.Service<
  Measurements,
  {
    readonly find: (wanted: Wanted) => Effect.Effect<Found, StoreUnavailable>
  }
>()("svc/speed-insights/Measurements") {
  static readonly layer = Layer.effect(
    Measurements,
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      return Measurements.of({
        // One statement, so that what moves into the sums meanwhile is counted once. Indexes: the primary key of speed_day,
        // speed_batch_received.
        find: Effect.fn("Measurements.find")(function* (wanted) {
          const { orgId, projectId, environmentUid, from, until, device = null, route = null } = wanted
          const gate = inOrg(sql, orgId)
          const days = sql`
            from speed_day d
            where d.org_id = ${orgId}::uuid and d.project_uid = ${projectId}::uuid
              and d.environment_uid = ${environmentUid}::uuid and ${gate}
              and d.day >= (${from}::timestamptz at time zone 'UTC')::date
              and d.day < (${until}::timestamptz at time zone 'UTC' + interval '1 day' - interval '1 hour')::date
              and (${device}::int is null or d.device = ${device}::int)`
          const whole = sql`(d.day >= ${from}::timestamptz at time zone 'UTC'
            and d.day + 1 <= ${until}::timestamptz at time zone 'UTC')`
          const rows = yield* repeatable(sql<Row>`
            with top as materialized (
              select d.route ${days} and d.route <> '' and ${route}::text is null
              group by d.route order by sum(d.samples) desc, d.route limit ${mostRoutesTold}::int
            )
            select d.day::timestamp at time zone 'UTC' as day, d.route, d.hours, null::bytea as total,
              null::float8[] as at, null::int[] as metric, null::float8[] as value, null::text[] as routes,
              null::int[] as device
            ${days} and d.route = coalesce(${route}::text, '')
            union all
            select d.day::timestamp at time zone 'UTC', d.route, case when not ${whole} then d.hours end,
              case when ${whole} then d.total end, null, null, null, null, null
            ${days} and d.route in (select route from top)
            union all
            select null, null, null, null,
              array(select (extract(epoch from t) * 1000)::float8 from unnest(b.at) t),
              b.metric::int[], b.value::float8[], b.route, b.device::int[]
            from (
              select o.*, coalesce(sum(cardinality(o.metric)) over (order by o.received_at, o.batch_id
                rows between unbounded preceding and 1 preceding), 0) as events_before
              from (
                select * from speed_batch b
                where b.received_at > (select rolled_until from speed_rollup)
                  and b.org_id = ${orgId}::uuid and b.project_uid = ${projectId}::uuid
                  and b.environment_uid = ${environmentUid}::uuid and ${gate}
                  and b.day >= (${from}::timestamptz at time zone 'UTC')::date - 2
                  and b.day <= (${until}::timestamptz at time zone 'UTC')::date
                order by b.received_at, b.batch_id limit ${mostRecent.batches}::int
              ) o
            ) b where b.events_before < ${mostRecent.events}::int`)
          return { sums: rows.filter((row) => !isRecent(row)), recent: rows.filter(isRecent) }
        })
      })
    })
  )
}
