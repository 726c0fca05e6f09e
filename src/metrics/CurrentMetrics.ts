/** The newest measurements of resources, for features that judge by them. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { Values } from "./MetricSamples.ts"

/** What one look measured. */
export interface Measured {
  readonly at: Date
  readonly values: Values
}

export interface Subject {
  readonly orgId: string
  readonly uid: string
}

/** What is further from now is not what is so now. It lies ahead where a clock was set back. */
export const freshSeconds = 90

interface Row extends Measured {
  readonly uid: string
}

export class CurrentMetrics extends Context.Service<
  CurrentMetrics,
  {
    /** By uid, one for each that looks at the resource. What was never measured is left out. */
    readonly of: (
      orgId: string,
      uids: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyMap<string, ReadonlyArray<Measured>>, StoreUnavailable>
    /** By uid, what machines have measured of these resources in the last {@link freshSeconds}. */
    readonly onMachines: (
      subjects: ReadonlyArray<Subject>
    ) => Effect.Effect<ReadonlyMap<string, Values>, StoreUnavailable>
  }
>()("svc/metrics/CurrentMetrics") {
  static readonly layer = Layer.effect(
    CurrentMetrics,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      return CurrentMetrics.of({
        // Index: the primary key.
        of: Effect.fn("CurrentMetrics.of")(function* (orgId, uids) {
          if (uids.length === 0) return new Map()
          const rows = yield* repeatable(sql<Row>`
            select m.uid, m.at, m.values from metric_now m
            where m.org_id = ${orgId}::uuid
              and m.uid = any(array(select jsonb_array_elements_text(${sql.json(uids)}::jsonb)::uuid))`)
          return Map.groupBy(rows, ({ uid }) => uid)
        }),
        // Index: the primary key.
        onMachines: Effect.fn("CurrentMetrics.onMachines")(function* (subjects) {
          if (subjects.length === 0) return new Map()
          const asked = subjects.map(({ orgId, uid }) => ({ org_id: orgId, uid }))
          const rows = yield* repeatable(sql<Pick<Row, "uid" | "values">>`
            select m.uid, m.values
            from jsonb_to_recordset(${sql.json(asked)}::jsonb) as i(org_id uuid, uid uuid)
            join metric_now m on m.org_id = i.org_id and m.uid = i.uid and m.source = 'host'
            where m.at between now() - make_interval(secs => ${freshSeconds}::int)
              and now() + make_interval(secs => ${freshSeconds}::int)`)
          return new Map(rows.map(({ uid, values }) => [uid, values]))
        })
      })
    })
  )
}
