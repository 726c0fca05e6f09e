/** Reading a resource with all that one reconcile, or one look, of it needs to know. */
import * as Effect from "effect/Effect"
import type { Fragment, Statement } from "effect/sql/Statement"
import type { Phase } from "#schemas/condition.ts"
import type { Json } from "#schemas/kind.ts"
import { fromStored } from "#schemas/stored-spec.ts"
import type { Claimed } from "#src/engine/WorkStore.ts"
import { orUnavailable, type Sql } from "./Db.ts"
import { coversNow } from "./pauses.ts"
import { conditionsIn, differencesIn, isPhase } from "./status-columns.ts"

interface LeasedRow {
  readonly orgId: string
  readonly uid: string
  readonly kind: string
  readonly token: string
  readonly attempt: number
  readonly retryToken: string | null
  readonly lateBy: number
}

interface LoadedRow {
  readonly projectId: string | null
  readonly environment: string | null
  readonly name: string
  readonly parentUid: string | null
  readonly spec: Json
  readonly generation: number
  readonly status: Json | null
  readonly facts: Claimed["facts"]
  readonly observedGeneration: number
  readonly phase: string
  readonly phaseAge: number
  readonly settled: boolean
  readonly conditions: unknown
  readonly differences: unknown
  readonly deleting: boolean
  readonly paused: Claimed["paused"]
  readonly children: Claimed["children"]
  readonly seen: string
  readonly now: number
}

type Row = LeasedRow & LoadedRow

const hasPhase = (row: Row): row is Row & { readonly phase: Phase } => isPhase(row.phase)

/** Whether there is nothing to do about the resource in the row `r`, and nothing to tell. */
export const isSettled = (sql: Sql): Fragment => sql`
  r.settled and r.phase = 'ready' and r.observed_generation = r.generation and r.deletion_requested_at is null`

/** Who has paused the resource in the row `r`. Asked once for the whole statement: usually nothing is paused anywhere. */
export const pausedBy = (sql: Sql): Fragment => sql`
  case when (select exists (select from pause)) then
    (select jsonb_build_object('by', p.paused_by, 'reason', p.reason,
        'endsIn', extract(epoch from p.until - now()) * 1000)
      from pause p
      where ${coversNow(sql)}
      limit 1)
  end`

/** What is read of the resource in the row `r`. */
export const loaded = (sql: Sql): Fragment => sql`
  r.project_id as "projectId", r.environment, r.name, r.parent_uid as "parentUid", r.spec,
  r.generation, r.status, r.facts, r.observed_generation as "observedGeneration", r.phase,
  (extract(epoch from now() - r.phase_since) * 1000)::float8 as "phaseAge",
  ${isSettled(sql)} as settled, r.conditions, r.differences,
  r.deletion_requested_at is not null as deleting,
  ${pausedBy(sql)} as paused,
  case when r.deletion_requested_at is not null then
    (select jsonb_build_object('count', count(*),
        'notDeleting', count(*) filter (where c.deletion_requested_at is null),
        'first', coalesce(min(c.kind || ' "' || c.name || '"'), ''))
      from resource c where c.org_id = r.org_id and c.parent_uid = r.uid and c.deleted_at is null)
  end as children,
  (select pg_current_snapshot())::text as seen,
  (extract(epoch from now()) * 1000)::float8 as now`

/** Runs a statement that answers what was leased with what is {@link loaded} of it. */
export const load = Effect.fnUntraced(function* (statement: Statement<Row>) {
  const claimed: Array<Claimed> = []
  for (const row of yield* orUnavailable(statement)) {
    // One row that nobody understands must not keep the others from their turn. It rests until its lease ends.
    if (!hasPhase(row)) {
      yield* Effect.logError(`the store holds an unknown phase "${row.phase}"`, { uid: row.uid })
      continue
    }
    const { conditions, differences, ...rest } = row
    claimed.push({
      ...rest,
      spec: fromStored(row.kind, row.spec),
      token: BigInt(row.token),
      reported: { conditions: conditionsIn(conditions), differences: differencesIn(differences) }
    })
  }
  return claimed
})
