/** Measurements as requests see them: the newest ones, and those of a time that is over. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Db, inOrg, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { freshSeconds } from "./CurrentMetrics.ts"
import { decode } from "./codec.ts"
import { add, addTable, coarser, ofSample, type Points } from "./points.ts"
import type { Window } from "./tiers.ts"

export interface Newest {
  readonly at: Date
  /** How far `at` is from now: also what lies ahead, since a clock was set back, is not what is so now. */
  readonly ageSeconds: number
  readonly values: Readonly<Record<string, number>>
  /** Whether there is a history of it. */
  readonly kept: boolean
}

/** A resource with its newest measurements. */
export interface Measured extends Newest {
  readonly uid: string
  readonly kind: string
  readonly name: string
  /** Slug; null: it belongs to the organization. */
  readonly project: string | null
  readonly environment: string | null
}

export class MetricHistory extends Context.Service<
  MetricHistory,
  {
    /** What each source measured last. */
    readonly newest: (orgId: string, uid: string) => Effect.Effect<ReadonlyArray<Newest>, StoreUnavailable>
    /**
     * Of an organization, what was measured in the last {@link freshSeconds}, the newest resources last, but of those that are
     * being deleted; no more than `limit` rows.
     */
    readonly all: (orgId: string, limit: number) => Effect.Effect<ReadonlyArray<Measured>, StoreUnavailable>
    /** Points of the window's step, by their time; those of steps without a sample are missing. */
    readonly points: (orgId: string, uid: string, window: Window) => Effect.Effect<Points, StoreUnavailable>
  }
>()("svc/metrics/MetricHistory") {
  static readonly layer = Layer.effect(
    MetricHistory,
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      return MetricHistory.of({
        // Index: the primary key.
        newest: Effect.fn("MetricHistory.newest")(function* (orgId, uid) {
          return yield* repeatable(sql<Newest>`
            select m.at, abs(extract(epoch from now() - m.at))::float8 as "ageSeconds", m.values, m.kept
            from metric_now m
            where m.org_id = ${orgId}::uuid and m.uid = ${uid}::uuid and ${inOrg(sql, orgId)} order by m.source`)
        }),
        // Index: the primary keys.
        all: Effect.fn("MetricHistory.all")(function* (orgId, limit) {
          return yield* repeatable(sql<Measured>`
            select r.uid, r.kind, r.name, case when r.kind = 'Project' then r.name else p.name end as project,
              case when r.kind = 'Environment' then r.name else r.environment end as environment,
              m.at, abs(extract(epoch from now() - m.at))::float8 as "ageSeconds", m.values, m.kept
            from metric_now m join resource r on r.org_id = m.org_id and r.uid = m.uid
            left join resource p on p.org_id = r.org_id and p.uid = r.project_id
            where m.org_id = ${orgId}::uuid and r.deletion_requested_at is null and r.deleted_at is null
              and m.at between now() - make_interval(secs => ${freshSeconds}::int)
                and now() + make_interval(secs => ${freshSeconds}::int)
              and ${inOrg(sql, orgId)}
            order by m.uid, m.source limit ${limit}::int`)
        }),
        // One statement, and so one moment: what is being packed counts once. Index: the primary keys.
        points: Effect.fn("MetricHistory.points")(function* (
          orgId,
          uid,
          { tier, stepSeconds, start, count }
        ) {
          const stepMs = stepSeconds * 1_000
          const end = start + count * stepMs
          const [from, to] = [new Date(start), new Date(end)]
          const rows = yield* repeatable(sql<{
            readonly at: Date
            readonly data: Uint8Array | null
            readonly values: Readonly<Record<string, number>> | null
          }>`
            select t.start as at, t.data, null::jsonb as values from ${sql(tier.table)} t
            where t.org_id = ${orgId}::uuid and t.uid = ${uid}::uuid and ${inOrg(sql, orgId)}
              and t.start > ${from}::timestamptz - make_interval(secs => ${tier.rowSeconds}::int)
              and t.start < ${to}::timestamptz
            union all
            select s.at, null, s.values from metric_sample s
            where s.org_id = ${orgId}::uuid and s.uid = ${uid}::uuid and ${inOrg(sql, orgId)}
              and s.at >= ${from}::timestamptz and s.at < ${to}::timestamptz`)
          const points: Points = new Map()
          for (const [index, { at, data, values }] of rows.entries()) {
            // A year takes a while: others get their turn in between.
            if (index % 64 === 63 && data !== null) yield* Effect.yieldNow
            if (data !== null) addTable(points, decode(data))
            for (const [name, value] of Object.entries(values ?? {}))
              add(points, at.getTime(), name, ofSample(value))
          }
          for (const time of points.keys()) if (time < start || time >= end) points.delete(time)
          return coarser(points, stepMs)
        })
      })
    })
  )
}
