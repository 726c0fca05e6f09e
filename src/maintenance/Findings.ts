/** What runs of maintenance found, as requests see it. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type { Fragment } from "effect/sql/Statement"
import type { MaintenanceCategory } from "#schemas/maintenance.ts"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, inOrg, orUnavailable, repeatable, type Sql } from "#src/store/Db.ts"
import { isPaused } from "#src/store/pauses.ts"
import type { Actor } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { Finding } from "./finding.ts"
import type { Ref } from "./Schedules.ts"

export type FindingState = "open" | "dismissed" | "resolved"

export interface FindingRecord extends Omit<Finding, "key" | "basis"> {
  readonly id: string
  readonly state: FindingState
  readonly firstSeenAt: Date
  readonly lastSeenAt: Date
  readonly resolvedAt: Date | null
  readonly dismissedAt: Date | null
  readonly dismissedBy: string | null
  readonly dismissedReason: string | null
}

export interface FindingFilter {
  readonly state?: FindingState
  readonly category?: MaintenanceCategory
}

export class Findings extends Context.Service<
  Findings,
  {
    /** Newest first. */
    readonly list: (
      ref: Ref,
      filter: FindingFilter,
      limit: number,
      before?: { readonly firstSeenAt: string; readonly id: string }
    ) => Effect.Effect<ReadonlyArray<FindingRecord>, StoreUnavailable>
    /** How many are open, and neither dismissed. */
    readonly countOpen: (ref: Ref) => Effect.Effect<number, StoreUnavailable>
    /** Until it changes, nothing is done about it. Dismissing again replaces the reason. None: there is no such finding. */
    readonly dismiss: (
      ref: Ref,
      id: string,
      reason: string,
      actor: Actor
    ) => Effect.Effect<Option.Option<FindingRecord>, StoreUnavailable>
    /** Takes a dismissal back. None: there is no such finding. */
    readonly reopen: (
      ref: Ref,
      id: string,
      actor: Actor
    ) => Effect.Effect<Option.Option<FindingRecord>, StoreUnavailable>
  }
>()("svc/maintenance/Findings") {
  static readonly layer = Layer.effect(
    Findings,
    Effect.gen(function* () {
      const { api: sql } = yield* Db

      const dismissal = Effect.fnUntraced(function* (
        { orgId, uid }: Ref,
        id: string,
        reason: string | null,
        actor: Actor
      ) {
        const [row] = yield* orUnavailable(sql<FindingRecord>`
          with changed as (
            update maintenance_finding f set
              dismissed_at = case when ${reason}::text is not null then now() end,
              dismissed_by = case when ${reason}::text is not null then ${actor.principal}::text end,
              dismissed_reason = ${reason}::text
            where f.org_id = ${orgId}::uuid and f.id = ${id}::uuid and f.maintenance_uid = ${uid}::uuid
              and ${inOrg(sql, orgId)}
            returning ${columns(sql)}
          ), audited as (${auditOf(sql, orgId, actor, "changed")})
          select * from changed`)
        return Option.fromUndefinedOr(row)
      })

      return Findings.of({
        // Index: maintenance_finding_listing.
        list: Effect.fn("Findings.list")(function* ({ orgId, uid }, { state, category }, limit, before) {
          return yield* repeatable(sql<FindingRecord>`
            select ${columns(sql)} from maintenance_finding f
            where f.org_id = ${orgId}::uuid and f.maintenance_uid = ${uid}::uuid and ${inOrg(sql, orgId)}
              and (${state ?? null}::text is null or ${stateOf(sql)} = ${state ?? null}::text)
              and (${category ?? null}::text is null or f.category = ${category ?? null}::text)
              and (${before?.id ?? null}::uuid is null or (f.first_seen_at, f.id)
                < (${before?.firstSeenAt ?? null}::timestamptz, ${before?.id ?? null}::uuid))
            order by f.first_seen_at desc, f.id desc limit ${limit}::int`)
        }),
        countOpen: Effect.fn("Findings.countOpen")(function* ({ orgId, uid }) {
          const [row] = yield* repeatable(sql<{ readonly open: number }>`
            select count(*)::int as open from maintenance_finding f
            where f.org_id = ${orgId}::uuid and f.maintenance_uid = ${uid}::uuid and ${stateOf(sql)} = 'open'
              and ${inOrg(sql, orgId)}`)
          return row?.open ?? 0
        }),
        dismiss: dismissal,
        reopen: (ref, id, actor) => dismissal(ref, id, null, actor)
      })
    })
  )
}

/** Whether what the finding in the row `f` is about is paused. */
export const isSubjectPaused = (sql: Sql): Fragment =>
  sql`exists (select from resource r where r.org_id = f.org_id and r.uid = (f.subject ->> 'id')::uuid
    and ${isPaused(sql)})`

const stateOf = (sql: Sql) =>
  sql.literal(`case when f.resolved_at is not null then 'resolved' when f.dismissed_at is not null then 'dismissed'
    else 'open' end`)

const columns = (sql: Sql) => sql`
  f.id, f.category, f.severity, f.subject, f.summary, f.risk, f.evidence, f.remedy, ${stateOf(sql)} as state,
  f.first_seen_at as "firstSeenAt", f.last_seen_at as "lastSeenAt", f.resolved_at as "resolvedAt",
  f.dismissed_at as "dismissedAt", f.dismissed_by as "dismissedBy", f.dismissed_reason as "dismissedReason"`
