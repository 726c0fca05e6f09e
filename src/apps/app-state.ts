/** What is stored of an app and its instances, as its reconciler decides by it. */
import type * as Effect from "effect/Effect"
import type { Fragment } from "effect/sql/Statement"
import type { AppPower } from "#schemas/app.ts"
import type { Sql } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface AppRef {
  readonly orgId: string
  readonly uid: string
}
export interface FencedApp extends AppRef {
  readonly fence: bigint
}

export type InstanceState = "starting" | "healthy" | "draining" | "stopping" | "ended"

export interface Instance {
  readonly uid: string
  readonly deployment: string
  readonly revision: string
  readonly port: number
  readonly state: InstanceState
  readonly madeAt: Date
  readonly containerMade: boolean
  readonly address: string | null
  readonly startedAt: Date | null
  readonly healthyAt: Date | null
  readonly drainAt: Date | null
  readonly stopAt: Date | null
  readonly endedAt: Date | null
  readonly exitCode: number | null
  readonly exitReason: string | null
  readonly logComplete: boolean
  /** Since who follows it last said so, by the store's clock. */
  readonly logOwnerAgeMs: number | null
  /** Checks of its health in a row, once it was healthy, that it did not answer well, and when that number changed. */
  readonly unanswered: number
  readonly checkedAt: Date | null
}

export interface AppRow {
  readonly power: AppPower
  readonly activeAt: Date
  readonly asleepAt: Date | null
  readonly servingRevision: string | null
  readonly servingDeployment: string | null
  readonly rejectedRevision: string | null
  readonly rejectedDeployment: string | null
  readonly rejectedError: string | null
  /** Rounds of instances of `startedRevision` in a row that ended by themselves. */
  readonly crashes: number
  /** When the next one of them may be started. */
  readonly nextStartAt: Date | null
  /** Of the instance that was added last. */
  readonly startedRevision: string | null
  /** Instances that the requests under way need, and when as many were last needed; null: as few as may be. */
  readonly scale: number | null
  readonly scaleAt: Date | null
}

/** Everything about an app that its reconciler decides by. */
export interface AppState {
  readonly row: AppRow
  /** Those that are not gone, the oldest first. */
  readonly instances: ReadonlyArray<Instance>
}

/** The edge's side of it. */
export interface SiteState {
  readonly target: unknown
  readonly appUid: string | null
  readonly asleep: boolean
  readonly wakeRequested: boolean
  /** The last minute in which a request ended. */
  readonly lastMinute: Date | null
  /** An origin of the environment's own takes the requests. */
  readonly origin: string | null
  readonly scalesToZero: boolean
  /** Requests under way, averaged over some seconds. */
  readonly requests: number
}

/** What instances that ended by themselves make of the app. */
export interface Crashed {
  readonly crashes: number
  readonly nextStartAt: Date
}

/** False: a later reconcile was here, or what was to be changed is over; nothing was done. */
export type Change = Effect.Effect<boolean, StoreUnavailable>

/** Columns of an `AppRow`, of the table `app`. */
export const rowColumns = (sql: Sql): Fragment => sql`
  power, active_at as "activeAt", asleep_at as "asleepAt",
  serving_revision as "servingRevision", serving_deployment as "servingDeployment",
  rejected_revision as "rejectedRevision", rejected_deployment as "rejectedDeployment",
  rejected_error as "rejectedError", crashes, next_start_at as "nextStartAt", scale, scale_at as "scaleAt",
  (select i.revision from app_instance i where i.org_id = app.org_id and i.app_uid = app.uid
    order by i.uid desc limit 1) as "startedRevision"`

/** Columns of an `Instance`, of the table `app_instance`. */
export const instanceColumns = (sql: Sql): Fragment => sql`
  uid, deployment_uid as deployment, revision, port, state, made_at as "madeAt",
  container_made as "containerMade", address, started_at as "startedAt", healthy_at as "healthyAt",
  drain_at as "drainAt", stop_at as "stopAt", ended_at as "endedAt", exit_code as "exitCode",
  exit_reason as "exitReason", log_complete as "logComplete", unanswered, checked_at as "checkedAt",
  extract(epoch from clock_timestamp() - log_owner_at)::float8 * 1000 as "logOwnerAgeMs"`
