/** Where the requests of an app go: the edge's site of its environment, in one statement with what is known of the app. */
import type { Fragment } from "effect/sql/Statement"
import type { AppPower } from "#schemas/app.ts"
import type { Target } from "#src/edge/target.ts"
import { storableText } from "#src/storable.ts"
import { repeatable, type Sql } from "#src/store/Db.ts"
import { dueNow } from "#src/store/work-rows.ts"
import type { Change, FencedApp } from "./app-state.ts"
import { any, fencedChanges } from "./fenced-changes.ts"

/** Under which of an app's secrets it is kept what instances of a revision are started with. */
export const revisionField = (revision: string) => `revision/${revision}`

export interface RequestChanges {
  /**
   * Sends the requests to these instances from now on, in one statement with what is known of it: all others of the app
   * that took some are to drain.
   */
  readonly serve: (
    ref: FencedApp,
    what: {
      readonly revision: string
      readonly deployment: string
      readonly target: Target | null
      /** Those that stay; of them, those that the target names take requests. */
      readonly instances: ReadonlyArray<string>
      /** Whether the edge is told. */
      readonly route: boolean
      readonly at: Date
    }
  ) => Change
  readonly reject: (
    ref: FencedApp,
    what: { readonly revision: string; readonly deployment: string; readonly error: string }
  ) => Change
  readonly active: (ref: FencedApp) => Change
  /** Requests are held from now on. */
  readonly fallAsleep: (ref: FencedApp, at: Date) => Change
  readonly power: (ref: FencedApp, power: AppPower) => Change
  /** Requests are held no more. */
  readonly wake: (ref: FencedApp, at: Date) => Change
  /** Requests go nowhere from now on, and are not held either. */
  readonly unroute: (ref: FencedApp) => Change
}

export const makeRequestChanges = (sql: Sql): RequestChanges => {
  const { mine, ofApp, rejectedIf } = fencedChanges(sql)
  /** What was kept of revisions, but of these. */
  const kept = ({ orgId, uid }: FencedApp, but: Fragment) => sql`
    delete from secret where org_id = ${orgId}::uuid and uid = ${uid}::uuid and starts_with(field, ${revisionField("")})
      and exists (select from mine) and field not in (${but})`
  /** The deployment that waits for it is looked at: a CTE, and what announces it. */
  const woken = ({ orgId }: FencedApp, deployment: string) => sql`
    woken as (
      update work w set ${dueNow(sql)} from deployment d
      where d.org_id = ${orgId}::uuid and d.uid = ${deployment}::uuid and d.state = 'starting'
        and w.org_id = d.org_id and w.uid = d.uid and exists (select from mine)
      returning w.uid
    )`
  const told = sql`(select count(pg_notify('svc_work', '')) from woken)`
  return {
    reject: (ref, { revision, deployment, error }) =>
      any(
        repeatable(sql`
          with mine as (
            update app set rejected_revision = ${revision}, rejected_deployment = ${deployment}::uuid,
              rejected_error = ${storableText(error, 2_000)}, crashes = 0, next_start_at = null
            where ${mine(ref)} returning uid, serving_revision
          ), pruned as (${kept(ref, sql`select ${revisionField("")} || serving_revision from mine where serving_revision is not null`)}),
          ${woken(ref, deployment)}
          select uid, ${told} from mine`)
      ),
    serve: (ref, { revision, deployment, target, instances, route, at }) => {
      const wanted = sql`${target === null ? null : JSON.stringify(target)}::jsonb`
      return any(
        repeatable(sql`
          with mine as (
            update app set serving_revision = ${revision}, serving_deployment = ${deployment}::uuid,
              active_at = case when serving_revision is distinct from ${revision} then ${at} else active_at end,
              ${rejectedIf(sql`serving_revision is not distinct from ${revision}`)}
            where ${mine(ref)} returning org_id, uid, environment_uid
          ), routed as (
            update edge_site s set target = ${wanted}, app_uid = m.uid
            from mine m where ${route}::boolean and s.org_id = m.org_id and s.environment_uid = m.environment_uid
              and not exists (select from resource e where e.org_id = m.org_id and e.uid = m.environment_uid
                and e.spec ? 'origin')
              and (s.target is distinct from ${wanted} or s.app_uid is distinct from m.uid)
          ), draining as (
            update app_instance i set state = 'draining', drain_at = ${at}
            from mine m where i.org_id = m.org_id and i.app_uid = m.uid and i.state = 'healthy'
              and i.uid not in (select x::uuid from jsonb_array_elements_text(${sql.json(instances)}) x)
          ), pruned as (${kept(
            ref,
            // What is being rolled out has instances already.
            sql`select ${revisionField("")} || revision from app_instance
              where org_id = ${ref.orgId}::uuid and app_uid = ${ref.uid}::uuid and not removed
              union all select ${revisionField(revision)}::text`
          )}),
          ${woken(ref, deployment)}
          select uid, ${told} from mine`)
      )
    },
    active: (ref) => ofApp(ref, sql`active_at = now()`),
    power: (ref, power) => ofApp(ref, sql`power = ${power}`),
    fallAsleep: (ref, at) =>
      any(
        repeatable(sql`
          with mine as (
            update app set asleep_at = ${at}, scale = null where ${mine(ref)} returning org_id, uid, environment_uid
          ), held as (
            update edge_site s set asleep = true, wake_requested_at = null from mine m
            where s.org_id = m.org_id and s.environment_uid = m.environment_uid and not s.asleep
          )
          select uid from mine`)
      ),
    wake: (ref, at) =>
      any(
        repeatable(sql`
          with mine as (
            update app set power = 'awake', asleep_at = null, active_at = ${at}
            where ${mine(ref)} returning org_id, uid, environment_uid
          ), released as (
            update edge_site s set asleep = false, wake_requested_at = null from mine m
            where s.org_id = m.org_id and s.environment_uid = m.environment_uid
              and (s.asleep or s.wake_requested_at is not null)
          )
          select uid from mine`)
      ),
    unroute: (ref) =>
      any(
        repeatable(sql`
          with mine as (
            update app set fence = ${ref.fence} where ${mine(ref)} returning org_id, environment_uid, uid
          ), unrouted as (
            update edge_site s set target = null, asleep = false, wake_requested_at = null
            from mine m where s.org_id = m.org_id and s.environment_uid = m.environment_uid and s.app_uid = m.uid
              and (s.target is not null or s.asleep)
          )
          select uid from mine`)
      )
  }
}
