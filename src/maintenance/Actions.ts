/** Operations that runs of maintenance decided on: stored before they are called, each under the id of its row. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type { Json } from "#schemas/kind.ts"
import { Maintenance } from "#schemas/maintenance.ts"
import { fromStored } from "#schemas/stored-spec.ts"
import type { Room } from "#src/loops/leased.ts"
import { Db, inOrg, repeatable } from "#src/store/Db.ts"
import { isPaused } from "#src/store/pauses.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { isSubjectPaused } from "./Findings.ts"
import type { Remedy } from "./finding.ts"
import { type Lease, makeLeasedRows } from "./leased-rows.ts"
import { MaintenanceOptions } from "./options.ts"

export interface ActionRecord {
  readonly id: string
  readonly runId: string
  readonly findingId: string
  readonly remedy: Remedy
  /** `refused`: it was not called, or what it was called for did not allow it. */
  readonly status: "planned" | "running" | "succeeded" | "failed" | "refused"
  readonly createdAt: Date
  readonly finishedAt: Date | null
  /** Status code that the operation answered. */
  readonly answered: number | null
  readonly reason: string | null
}

/** An action that this process may carry out, and no other process until the lease ends. */
export interface ClaimedAction extends Lease {
  readonly maintenanceUid: string
  readonly runId: string
  readonly findingId: string
  readonly remedy: Remedy
  /** When it was decided on. */
  readonly createdAt: Date
  /** From 1. */
  readonly attempt: number
}

/** What an action stands on when it is about to be carried out. */
export interface Standing {
  /** Of the maintenance, as it is wanted now. */
  readonly spec: Json
  readonly deleting: boolean
  readonly paused: boolean
  /** What the finding is about is paused: nobody but a person changes it. */
  readonly subjectPaused: boolean
  /** The finding is still there, and nobody dismissed it. */
  readonly open: boolean
  readonly organization: { readonly id: string; readonly slug: string; readonly billingStatus: string }
}

export type ActionResult =
  | {
      readonly _tag: "Ended"
      readonly status: "succeeded" | "failed" | "refused"
      readonly answered: number | null
      readonly reason: string | null
    }
  /** Tried again after so many seconds. */
  | {
      readonly _tag: "Again"
      readonly seconds: number
      readonly answered: number | null
      readonly reason: string
    }

export class Actions extends Context.Service<
  Actions,
  {
    readonly claim: (
      room: Room<ClaimedAction>
    ) => Effect.Effect<ReadonlyArray<ClaimedAction>, StoreUnavailable>
    readonly renew: (
      actions: ReadonlyArray<ClaimedAction>
    ) => Effect.Effect<ReadonlySet<string>, StoreUnavailable>
    readonly release: (actions: ReadonlyArray<ClaimedAction>) => Effect.Effect<void, StoreUnavailable>
    readonly nextIn: Effect.Effect<number | undefined, StoreUnavailable>
    /** None: the maintenance is gone. */
    readonly standing: (action: ClaimedAction) => Effect.Effect<Option.Option<Standing>, StoreUnavailable>
    readonly settle: (action: ClaimedAction, result: ActionResult) => Effect.Effect<void, StoreUnavailable>
    /** Of several runs, oldest first. */
    readonly ofRuns: (
      orgId: string,
      runs: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyArray<ActionRecord>, StoreUnavailable>
  }
>()("svc/maintenance/Actions") {
  static readonly layer = Layer.effect(
    Actions,
    Effect.gen(function* () {
      const { api, engine: sql } = yield* Db
      const { leaseMs } = yield* MaintenanceOptions
      return Actions.of({
        ...makeLeasedRows<ClaimedAction>(sql, "maintenance_action", leaseMs),
        standing: Effect.fn("Actions.standing")(function* ({ orgId, maintenanceUid, findingId }) {
          const [row] = yield* repeatable(sql<Standing>`
            select r.spec, r.deletion_requested_at is not null as deleting, ${isPaused(sql)} as paused,
              ${isSubjectPaused(sql)} as "subjectPaused",
              coalesce(f.resolved_at is null and f.dismissed_at is null and f.id is not null, false) as open,
              jsonb_build_object('id', o.id, 'slug', o.slug, 'billingStatus', o.billing_status) as organization
            from resource r
            join organization o on o.id = r.org_id
            left join maintenance_finding f on f.org_id = r.org_id and f.id = ${findingId}::uuid
            where r.org_id = ${orgId}::uuid and r.uid = ${maintenanceUid}::uuid and r.deleted_at is null
              and o.deletion_requested_at is null`)
          return Option.map(Option.fromUndefinedOr(row), (found) => ({
            ...found,
            spec: fromStored(Maintenance.name, found.spec)
          }))
        }),
        settle: ({ orgId, id, lease }, result) => {
          const held = sql`org_id = ${orgId}::uuid and id = ${id}::uuid and lease_token = ${lease}::bigint
            and finished_at is null`
          return Effect.asVoid(
            repeatable(
              result._tag === "Ended"
                ? sql`update maintenance_action set status = ${result.status}, answered = ${result.answered}::int,
                    reason = ${result.reason}::text, lease_token = null, finished_at = clock_timestamp() where ${held}`
                : sql`update maintenance_action set status = 'planned', answered = ${result.answered}::int,
                    reason = ${result.reason}, lease_token = null,
                    due_at = clock_timestamp() + make_interval(secs => ${result.seconds}::float8) where ${held}`
            )
          )
        },
        // Index: maintenance_action_of_run.
        ofRuns: Effect.fn("Actions.ofRuns")(function* (orgId, runs) {
          if (runs.length === 0) return []
          return yield* repeatable(api<ActionRecord>`
            select a.id, a.run_id as "runId", a.finding_id as "findingId", a.remedy, a.status,
              a.created_at as "createdAt", a.finished_at as "finishedAt", a.answered, a.reason
            from maintenance_action a
            where a.org_id = ${orgId}::uuid and ${inOrg(api, orgId)}
              and a.run_id = any(array(select jsonb_array_elements_text(${api.json(runs)}::jsonb)::uuid))
            order by a.created_at, a.id`)
        })
      })
    })
  )
}
