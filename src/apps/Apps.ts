/**
 * What the reconciler of apps knows: where the requests go, and the instances that there are. Every change carries the
 * fencing number of the reconcile that makes it; the row of the app is what fences its instances too.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type { Fragment } from "effect/sql/Statement"
import type { AppPower } from "#schemas/app.ts"
import { storableText } from "#src/storable.ts"
import { Db, inOrg, repeatable } from "#src/store/Db.ts"
import { dueNow } from "#src/store/work-rows.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface AppRef {
  readonly orgId: string
  readonly uid: string
}
export interface FencedApp extends AppRef {
  readonly fence: bigint
}

/** Ended instances of an app that are kept with what they printed, besides by their age. */
export const keptInstances = 20

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
}

/** What instances that ended by themselves make of the app. */
export interface Crashed {
  readonly crashes: number
  readonly nextStartAt: Date
}

/** False: a later reconcile was here, or what was to be changed is over; nothing was done. */
type Change = Effect.Effect<boolean, StoreUnavailable>

export class Apps extends Context.Service<
  Apps,
  {
    readonly find: (ref: AppRef) => Effect.Effect<Option.Option<AppState>, StoreUnavailable>
    /** None: the environment has no site yet. */
    readonly site: (
      orgId: string,
      environmentUid: string
    ) => Effect.Effect<Option.Option<SiteState>, StoreUnavailable>
    readonly begin: (ref: FencedApp & { readonly environmentUid: string }) => Change
    readonly claim: (ref: FencedApp) => Change
    readonly add: (
      ref: FencedApp,
      instance: {
        readonly uid: string
        readonly deployment: string
        readonly revision: string
        readonly port: number
        readonly at: Date
      }
    ) => Change
    readonly making: (ref: FencedApp, instance: string) => Change
    readonly started: (ref: FencedApp, instance: string, address: string, at: Date) => Change
    readonly healthy: (ref: FencedApp, instance: string) => Change
    /** They were told to end; with `after` because they did not get healthy. */
    readonly stopping: (
      ref: FencedApp,
      instances: ReadonlyArray<string>,
      how: { readonly at: Date; readonly why: string },
      after: Crashed | undefined
    ) => Change
    /** With `after` by itself, as the first of its round. */
    readonly ended: (
      ref: FencedApp,
      instance: string,
      how: { readonly at: Date; readonly exitCode: number | null; readonly reason: string },
      after: Crashed | undefined
    ) => Change
    readonly steady: (ref: FencedApp) => Change
    readonly reject: (
      ref: FencedApp,
      what: { readonly revision: string; readonly deployment: string; readonly error: string }
    ) => Change
    /**
     * Sends the requests to these instances from now on, in one statement with what is known of it: all others of the app
     * that took some are to drain.
     */
    readonly serve: (
      ref: FencedApp,
      what: {
        readonly revision: string
        readonly deployment: string
        readonly target: { readonly address: string; readonly port: number } | null
        readonly instances: ReadonlyArray<string>
        /** Whether the edge is told. */
        readonly route: boolean
        readonly at: Date
      }
    ) => Change
    readonly active: (ref: FencedApp) => Change
    /** Requests are held from now on. */
    readonly fallAsleep: (ref: FencedApp, at: Date) => Change
    readonly power: (ref: FencedApp, power: AppPower) => Change
    /** Requests are held no more. */
    readonly wake: (ref: FencedApp, at: Date) => Change
    /** Ready instances are to start at once: somebody asked. */
    readonly forgetCrashes: (ref: FencedApp) => Change
    readonly logsGivenUp: (ref: FencedApp, instance: string) => Change
    readonly removed: (ref: FencedApp, instance: string) => Change
    /** Requests go nowhere from now on, and are not held either. */
    readonly unroute: (ref: FencedApp) => Change
    /** With its instances and what they printed; requests go nowhere any more. */
    readonly forget: (ref: FencedApp) => Change
    /** Makes the reconciler look at the app of an instance now. */
    readonly wakeReconciler: (orgId: string, instance: string) => Effect.Effect<void, StoreUnavailable>
    /** Of these, the instances that are known and may have a container. */
    readonly known: (refs: ReadonlyArray<AppRef>) => Effect.Effect<ReadonlySet<string>, StoreUnavailable>
    /** For answers: those of an app, newest first. */
    readonly instances: (
      orgId: string,
      app: string,
      limit: number
    ) => Effect.Effect<ReadonlyArray<Instance>, StoreUnavailable>
    /** For answers. */
    readonly row: (orgId: string, app: string) => Effect.Effect<Option.Option<AppRow>, StoreUnavailable>
  }
>()("svc/apps/Apps") {
  static readonly layer = Layer.effect(
    Apps,
    Effect.gen(function* () {
      const { api, engine: sql } = yield* Db
      const any = Effect.map((rows: ReadonlyArray<unknown>) => rows.length > 0)
      const mine = ({ orgId, uid, fence }: FencedApp) =>
        sql`org_id = ${orgId}::uuid and uid = ${uid}::uuid and fence <= ${fence}`
      const ofApp =
        (set: Fragment) =>
        (ref: FencedApp, condition: Fragment = sql`true`) =>
          any(repeatable(sql`update app set ${set} where ${mine(ref)} and ${condition} returning uid`))
      /** Of instances: only while the app is ours. */
      const ofInstance = (ref: FencedApp, uid: string, set: Fragment, condition: Fragment) =>
        any(
          repeatable(sql`
            update app_instance set ${set}
            where org_id = ${ref.orgId}::uuid and app_uid = ${ref.uid}::uuid and uid = ${uid}::uuid and ${condition}
              and exists (select from app where ${mine(ref)})
            returning uid`)
        )
      const crashed = (after: Crashed | undefined) => sql`
        crashes = coalesce(${after?.crashes ?? null}::int, crashes),
        next_start_at = coalesce(${after?.nextStartAt ?? null}::timestamptz, next_start_at)`
      const rowColumns = sql`power, active_at as "activeAt", asleep_at as "asleepAt",
        serving_revision as "servingRevision", serving_deployment as "servingDeployment",
        rejected_revision as "rejectedRevision", rejected_deployment as "rejectedDeployment",
        rejected_error as "rejectedError", crashes, next_start_at as "nextStartAt",
        (select i.revision from app_instance i where i.org_id = app.org_id and i.app_uid = app.uid
          order by i.uid desc limit 1) as "startedRevision"`
      const instanceColumns = sql`uid, deployment_uid as deployment, revision, port, state, made_at as "madeAt",
        container_made as "containerMade", address, started_at as "startedAt", healthy_at as "healthyAt",
        drain_at as "drainAt", stop_at as "stopAt", ended_at as "endedAt", exit_code as "exitCode",
        exit_reason as "exitReason", log_complete as "logComplete",
        extract(epoch from clock_timestamp() - log_owner_at)::float8 * 1000 as "logOwnerAgeMs"`

      return Apps.of({
        find: Effect.fn("Apps.find")(function* ({ orgId, uid }) {
          const [row] = yield* repeatable(sql<AppRow>`
            select ${rowColumns} from app where org_id = ${orgId}::uuid and uid = ${uid}::uuid`)
          if (row === undefined) return Option.none()
          // Index: app_instance_app.
          const instances = yield* repeatable(sql<Instance>`
            select ${instanceColumns} from app_instance
            where org_id = ${orgId}::uuid and app_uid = ${uid}::uuid and not removed order by uid`)
          return Option.some({ row, instances })
        }),
        site: Effect.fn("Apps.site")(function* (orgId, environmentUid) {
          const [row] = yield* repeatable(sql<SiteState>`
            select s.target, s.app_uid as "appUid", s.asleep, s.wake_requested_at is not null as "wakeRequested",
              (select max(minute) from edge_request_minute m
                where m.org_id = s.org_id and m.environment_uid = s.environment_uid
                  and m.minute > now() - interval '30 days') as "lastMinute",
              e.spec->>'origin' as origin, p.spec->>'runtimeClass' = 'scale-to-zero' as "scalesToZero"
            from edge_site s
            join resource e on e.org_id = s.org_id and e.uid = s.environment_uid
            join resource p on p.org_id = s.org_id and p.uid = e.project_id
            where s.org_id = ${orgId}::uuid and s.environment_uid = ${environmentUid}::uuid`)
          return Option.fromUndefinedOr(row)
        }),
        begin: ({ orgId, uid, environmentUid, fence }) =>
          any(
            repeatable(sql`
              insert into app (org_id, uid, environment_uid, fence)
              values (${orgId}::uuid, ${uid}::uuid, ${environmentUid}::uuid, ${fence})
              on conflict (org_id, uid) do update set fence = excluded.fence where app.fence <= excluded.fence
              returning uid`)
          ),
        claim: (ref) => ofApp(sql`fence = ${ref.fence}`)(ref),
        // Index: app_instance_app.
        add: (ref, { uid, deployment, revision, port, at }) =>
          any(
            repeatable(sql`
              with another as (
                -- What another version did says nothing of this one. While what answers is started again, what was given
                -- up stays so.
                update app set crashes = 0, next_start_at = null,
                  rejected_revision = case when serving_revision = ${revision} then rejected_revision end,
                  rejected_deployment = case when serving_revision = ${revision} then rejected_deployment end,
                  rejected_error = case when serving_revision = ${revision} then rejected_error end
                where ${mine(ref)} and ${revision} is distinct from (select i.revision from app_instance i
                    where i.org_id = app.org_id and i.app_uid = app.uid order by i.uid desc limit 1)
              )
              insert into app_instance (org_id, uid, app_uid, deployment_uid, revision, port, made_at)
              select org_id, ${uid}::uuid, uid, ${deployment}::uuid, ${revision}, ${port}::int, ${at}
              from app where ${mine(ref)}
              on conflict do nothing
              returning uid`)
          ),
        making: (ref, uid) => ofInstance(ref, uid, sql`container_made = true`, sql`state = 'starting'`),
        started: (ref, uid, address, at) =>
          ofInstance(
            ref,
            uid,
            sql`address = ${address}, started_at = ${at}`,
            sql`state in ('starting', 'healthy')`
          ),
        healthy: (ref, uid) =>
          ofInstance(ref, uid, sql`state = 'healthy', healthy_at = now()`, sql`state = 'starting'`),
        stopping: (ref, uids, { at, why }, after) =>
          any(
            repeatable(sql`
              with told as (update app_instance set state = 'stopping', stop_at = ${at}, exit_reason = ${why}
              where org_id = ${ref.orgId}::uuid and app_uid = ${ref.uid}::uuid
                and uid in (select x::uuid from jsonb_array_elements_text(${sql.json(uids)}) x)
                and state in ('starting', 'healthy', 'draining') and exists (select from app where ${mine(ref)})
                returning uid
              ), counted as (
                update app set ${crashed(after)} where ${mine(ref)} and exists (select from told)
              )
              select uid from told`)
          ),
        ended: (ref, uid, { at, exitCode, reason }, after) =>
          any(
            repeatable(sql`
              with gone as (
                update app_instance set state = 'ended', ended_at = ${at}, exit_code = ${exitCode}::int,
                  exit_reason = coalesce(exit_reason, ${storableText(reason, 1_000)})
                where org_id = ${ref.orgId}::uuid and app_uid = ${ref.uid}::uuid and uid = ${uid}::uuid
                  and state <> 'ended' and exists (select from app where ${mine(ref)})
                returning uid, address
              ), unrouted as (
                -- Its address may soon be somebody else's.
                update edge_site s set target = null from gone g, app a
                where a.org_id = ${ref.orgId}::uuid and a.uid = ${ref.uid}::uuid and s.org_id = a.org_id
                  and s.environment_uid = a.environment_uid and s.app_uid = a.uid and s.target->>'address' = g.address
              ), counted as (
                update app set ${crashed(after)} where ${mine(ref)} and exists (select from gone)
              )
              select uid from gone`)
          ),
        steady: ofApp(sql`crashes = 0, next_start_at = null`),
        forgetCrashes: ofApp(sql`crashes = 0, next_start_at = null`),
        reject: (ref, { revision, deployment, error }) =>
          ofApp(sql`rejected_revision = ${revision}, rejected_deployment = ${deployment}::uuid,
            rejected_error = ${storableText(error, 2_000)}, crashes = 0, next_start_at = null`)(ref),
        serve: (ref, { revision, deployment, target, instances, route, at }) =>
          any(
            repeatable(sql`
              with mine as (
                update app set serving_revision = ${revision}, serving_deployment = ${deployment}::uuid,
                  active_at = case when serving_revision is distinct from ${revision} then ${at} else active_at end,
                  rejected_revision = case when serving_revision is not distinct from ${revision} then rejected_revision end,
                  rejected_deployment = case when serving_revision is not distinct from ${revision} then rejected_deployment end,
                  rejected_error = case when serving_revision is not distinct from ${revision} then rejected_error end
                where ${mine(ref)} returning org_id, uid, environment_uid
              ), routed as (
                update edge_site s set target = ${target === null ? null : JSON.stringify(target)}::jsonb, app_uid = m.uid
                from mine m where ${route}::boolean and s.org_id = m.org_id and s.environment_uid = m.environment_uid
                  and not exists (select from resource e where e.org_id = m.org_id and e.uid = m.environment_uid
                    and e.spec ? 'origin')
                  and (s.target is distinct from ${target === null ? null : JSON.stringify(target)}::jsonb
                    or s.app_uid is distinct from m.uid)
              ), draining as (
                update app_instance i set state = 'draining', drain_at = ${at}
                from mine m where i.org_id = m.org_id and i.app_uid = m.uid and i.state = 'healthy'
                  and i.uid not in (select x::uuid from jsonb_array_elements_text(${sql.json(instances)}) x)
              )
              select uid from mine`)
          ),
        active: (ref) => ofApp(sql`active_at = now()`)(ref),
        fallAsleep: (ref, at) =>
          any(
            repeatable(sql`
              with mine as (
                update app set asleep_at = ${at} where ${mine(ref)} returning org_id, uid, environment_uid
              ), held as (
                update edge_site s set asleep = true, wake_requested_at = null from mine m
                where s.org_id = m.org_id and s.environment_uid = m.environment_uid and not s.asleep
              )
              select uid from mine`)
          ),
        power: (ref, power) => ofApp(sql`power = ${power}`)(ref),
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
        logsGivenUp: (ref, uid) => ofInstance(ref, uid, sql`log_complete = true`, sql`true`),
        // Index: app_instance_app.
        removed: (ref, uid) =>
          any(
            repeatable(sql`
              with gone as (
                update app_instance set removed = true, log_complete = true
                where org_id = ${ref.orgId}::uuid and app_uid = ${ref.uid}::uuid and uid = ${uid}::uuid
                  and state = 'ended' and exists (select from app where ${mine(ref)})
                returning uid
              ), surplus as (
                -- A crash loop does not fill the store with what its instances printed.
                delete from app_instance where org_id = ${ref.orgId}::uuid and app_uid = ${ref.uid}::uuid and removed
                  and exists (select from gone)
                  and uid < (select i.uid from app_instance i where i.org_id = ${ref.orgId}::uuid
                    and i.app_uid = ${ref.uid}::uuid and i.removed order by i.uid desc
                    offset ${keptInstances - 2}::int limit 1)
              )
              select uid from gone`)
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
          ),
        forget: (ref) =>
          any(
            repeatable(sql`
              with gone as (delete from app where ${mine(ref)} returning org_id, environment_uid, uid),
              freed as (
                update edge_site s set target = null, app_uid = null, asleep = false, wake_requested_at = null
                from gone g where s.org_id = g.org_id and s.environment_uid = g.environment_uid and s.app_uid = g.uid
              )
              select uid from gone`)
          ),
        wakeReconciler: (orgId, instance) =>
          Effect.asVoid(
            repeatable(sql`
              with woken as (
                update work w set ${dueNow(sql)} from app_instance i
                where i.org_id = ${orgId}::uuid and i.uid = ${instance}::uuid and w.org_id = i.org_id and w.uid = i.app_uid
                returning w.uid
              )
              select pg_notify('svc_work', '') from woken`)
          ),
        known: Effect.fn("Apps.known")(function* (refs) {
          const given = refs.map(({ orgId, uid }) => ({ orgId, uid }))
          const rows = yield* repeatable(sql<{ readonly uid: string }>`
            select i.uid from jsonb_to_recordset(${sql.json(given)}::jsonb) as g("orgId" uuid, uid uuid)
            join app_instance i on i.org_id = g."orgId" and i.uid = g.uid
            where not i.removed`)
          return new Set(rows.map(({ uid }) => uid))
        }),
        // Index: app_instance_app.
        instances: (orgId, app, limit) =>
          repeatable(api<Instance>`
            select ${instanceColumns} from app_instance
            where org_id = ${orgId}::uuid and app_uid = ${app}::uuid and ${inOrg(api, orgId)}
            order by app_instance.uid desc limit ${limit}::int`),
        row: (orgId, app) =>
          Effect.map(
            repeatable(api<AppRow>`
              select ${rowColumns} from app
              where org_id = ${orgId}::uuid and uid = ${app}::uuid and ${inOrg(api, orgId)}`),
            ([row]) => Option.fromUndefinedOr(row)
          )
      })
    })
  )
}
