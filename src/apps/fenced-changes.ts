/** Changes of an app's rows that only the reconcile with the highest fencing number makes. */
import * as Effect from "effect/Effect"
import type { Fragment } from "effect/sql/Statement"
import { repeatable, type Sql } from "#src/store/Db.ts"
import type { Crashed, FencedApp } from "./app-state.ts"

/** Whether a statement that answers what it has changed did change something. */
export const any = Effect.map((rows: ReadonlyArray<unknown>) => rows.length > 0)

export const fencedChanges = (sql: Sql) => {
  /** The condition on the row of the app. */
  const mine = ({ orgId, uid, fence }: FencedApp) =>
    sql`org_id = ${orgId}::uuid and uid = ${uid}::uuid and fence <= ${fence}`
  return {
    mine,
    ofApp: (ref: FencedApp, set: Fragment) =>
      any(repeatable(sql`update app set ${set} where ${mine(ref)} returning uid`)),
    /** Of an instance: only while the app is ours. */
    ofInstance: (ref: FencedApp, uid: string, set: Fragment, condition: Fragment) =>
      any(
        repeatable(sql`
          update app_instance set ${set}
          where org_id = ${ref.orgId}::uuid and app_uid = ${ref.uid}::uuid and uid = ${uid}::uuid and ${condition}
            and exists (select from app where ${mine(ref)})
          returning uid`)
      ),
    crashed: (after: Crashed | undefined): Fragment => sql`
      crashes = coalesce(${after?.crashes ?? null}::int, crashes),
      next_start_at = coalesce(${after?.nextStartAt ?? null}::timestamptz, next_start_at)`,
    /** What was given up stays so on this condition only. */
    rejectedIf: (condition: Fragment): Fragment => sql`
      rejected_revision = case when ${condition} then rejected_revision end,
      rejected_deployment = case when ${condition} then rejected_deployment end,
      rejected_error = case when ${condition} then rejected_error end`
  }
}
