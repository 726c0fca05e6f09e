/** The one way in for measurements: whoever looks at resources records all that a look saw at once. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Measurement } from "#schemas/signal.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { settings } from "./settings.ts"

/** What was not measured for so long, as an execution that has ended, takes no place among those with a history. */
const measuredWithin = "5 minutes"

/** Who measured: the process on whose machine the thing is, or the sampler of what the store knows. */
export type Source = "host" | "store"

export type Values = Partial<Record<Measurement, number>>

export interface Sample {
  readonly orgId: string
  readonly uid: string
  readonly source: Source
  /** When the look was. A time to come counts as now. */
  readonly at: Date
  /** What could not be measured is left out; numbers that are not finite count as left out. */
  readonly values: Values
}

export class MetricSamples extends Context.Service<
  MetricSamples,
  {
    /**
     * Stores what a look saw, in one statement. Samples of resources that there are no more are left out, and so is an older
     * sample than the newest where the newest is asked for. Recording the same samples again changes nothing.
     */
    readonly record: (samples: ReadonlyArray<Sample>) => Effect.Effect<void, StoreUnavailable>
  }
>()("svc/metrics/MetricSamples") {
  static readonly layer = Layer.effect(
    MetricSamples,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const { resourcesWithHistory } = yield* settings
      return MetricSamples.of({
        // Indexes: the primary keys. Rows are written in the order of their keys, so that two looks never wait for each other.
        // The input is not joined with itself: the planner takes it for 100 rows, and would compare each with each.
        record: Effect.fn("MetricSamples.record")(function* (samples) {
          const rows = samples.flatMap(({ orgId, uid, source, at, values }) => {
            const told = toldOf(values)
            return told === undefined ? [] : [{ orgId, uid, source, at: at.toISOString(), values: told }]
          })
          if (rows.length === 0) return
          yield* repeatable(sql`
            with input as materialized (
              select i."orgId" as org_id, i.uid, i.source, least(i.at, now()) as at, i.values
              from jsonb_to_recordset(${sql.json(rows)}::jsonb)
                as i("orgId" uuid, uid uuid, source text, at timestamptz, values jsonb)
              join resource r on r.org_id = i."orgId" and r.uid = i.uid and r.deleted_at is null
            ), known as materialized (
              -- Whoever comes back takes a free place before those that never had one.
              select i.*, coalesce(w.kept, false) as kept, w.uid is not null as had_place
              from input i left join lateral (
                select m.uid, bool_or(m.at > now() - ${measuredWithin}::interval) as kept
                from metric_now m where m.org_id = i.org_id and m.uid = i.uid and m.kept group by m.uid
              ) w on true
            ), room as materialized (
              select o.org_id, ${resourcesWithHistory}::int - count(distinct m.uid) filter (where m.kept
                and m.at > now() - ${measuredWithin}::interval) as left
              from (select distinct org_id from known where not kept) o
              left join metric_now m on m.org_id = o.org_id
              group by o.org_id
            ), ranked as (
              select k.*, dense_rank() over (partition by k.org_id, k.kept order by not k.had_place, k.uid) as place,
                row_number() over (partition by k.org_id, k.uid, k.source order by k.at desc) as number
              from known k
            ), judged as materialized (
              select n.org_id, n.uid, n.source, n.at, n.values, n.number, n.kept or n.place <= r.left as kept
              from ranked n left join room r on r.org_id = n.org_id and not n.kept
            ), stored as (
              insert into metric_now as m (org_id, uid, source, at, values, kept)
              select org_id, uid, source, at, values, kept from judged where number = 1 order by org_id, uid, source
              on conflict (org_id, uid, source) do update set at = excluded.at, values = excluded.values,
                kept = excluded.kept
              -- What lies ahead was stored before a clock was set back: it would keep out all that is seen until then.
              where m.at <= excluded.at or m.at > now()
            )
            insert into metric_sample (org_id, uid, source, at, values)
            select org_id, uid, source, at, values from judged where kept order by org_id, uid, at, source
            on conflict (org_id, uid, at, source) do nothing`)
        })
      })
    })
  )
}

/** Three decimals are more than any measurement is exact to. Undefined: there is nothing to tell. */
const toldOf = (values: Values): Record<string, number> | undefined => {
  const told = Object.entries(values).flatMap(([name, value]): ReadonlyArray<[string, number]> => {
    const rounded = Math.round(value * 1_000) / 1_000
    return Number.isFinite(rounded) ? [[name, rounded]] : []
  })
  return told.length === 0 ? undefined : Object.fromEntries(told)
}
