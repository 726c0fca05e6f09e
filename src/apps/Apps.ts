/**
 * What the reconciler of apps knows: where the requests go, and the instances that there are. Every change carries the
 * fencing number of the reconcile that makes it; the row of the app is what fences its instances too.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { storableText } from "#src/storable.ts"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, inOrg, repeatable } from "#src/store/Db.ts"
import type { Actor } from "#src/store/records.ts"
import { dueNow } from "#src/store/work-rows.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import {
  type AppRef,
  type AppRow,
  type AppState,
  type Change,
  type FencedApp,
  type Instance,
  instanceColumns,
  rowColumns,
  type SiteState
} from "./app-state.ts"
import { any, fencedChanges } from "./fenced-changes.ts"
import { type InstanceChanges, makeInstanceChanges } from "./instance-changes.ts"
import { makeRequestChanges, type RequestChanges } from "./request-changes.ts"

interface Operations extends InstanceChanges, RequestChanges {
  readonly find: (ref: AppRef) => Effect.Effect<Option.Option<AppState>, StoreUnavailable>
  /** None: the environment has no site yet. */
  readonly site: (
    orgId: string,
    environmentUid: string
  ) => Effect.Effect<Option.Option<SiteState>, StoreUnavailable>
  readonly begin: (ref: FencedApp & { readonly environmentUid: string }) => Change
  readonly claim: (ref: FencedApp) => Change
  /** Its instances have run for long: those that ended before count no more. */
  readonly steady: (ref: FencedApp) => Change
  /** As many instances are needed at this moment; null: as few as may be. */
  readonly scale: (ref: FencedApp, to: number | null, at: Date) => Change
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
  /** That somebody runs this program in the instance; of what it is given nothing is kept. */
  readonly auditExec: (
    orgId: string,
    instance: string,
    program: string,
    actor: Actor
  ) => Effect.Effect<void, StoreUnavailable>
  /** For answers. */
  readonly row: (orgId: string, app: string) => Effect.Effect<Option.Option<AppRow>, StoreUnavailable>
}

export class Apps extends Context.Service<Apps, Operations>()("svc/apps/Apps") {
  static readonly layer = Layer.effect(
    Apps,
    Effect.gen(function* () {
      const { api, engine: sql } = yield* Db
      const { mine, ofApp } = fencedChanges(sql)
      return Apps.of({
        ...makeInstanceChanges(sql),
        ...makeRequestChanges(sql),
        find: Effect.fn("Apps.find")(function* ({ orgId, uid }) {
          const [row] = yield* repeatable(sql<AppRow>`
            select ${rowColumns(sql)} from app where org_id = ${orgId}::uuid and uid = ${uid}::uuid`)
          if (row === undefined) return Option.none()
          // Index: app_instance_app.
          const instances = yield* repeatable(sql<Instance>`
            select ${instanceColumns(sql)} from app_instance
            where org_id = ${orgId}::uuid and app_uid = ${uid}::uuid and not removed order by uid`)
          return Option.some({ row, instances })
        }),
        site: Effect.fn("Apps.site")(function* (orgId, environmentUid) {
          const [row] = yield* repeatable(sql<SiteState>`
            select s.target, s.app_uid as "appUid", s.asleep, s.wake_requested_at is not null as "wakeRequested",
              (select max(minute) from edge_request_minute m
                where m.org_id = s.org_id and m.environment_uid = s.environment_uid
                  and m.minute > now() - interval '30 days') as "lastMinute",
              e.spec->>'origin' as origin, p.spec->>'runtimeClass' = 'scale-to-zero' as "scalesToZero",
              -- What a node that has gone said last counts no more.
              (select coalesce(sum(l.requests), 0)::float8 from edge_load l
                where l.org_id = s.org_id and l.environment_uid = s.environment_uid
                  and l.at > now() - interval '15 seconds') as requests
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
        claim: (ref) => ofApp(ref, sql`fence = ${ref.fence}`),
        scale: (ref, to, at) => ofApp(ref, sql`scale = ${to}::int, scale_at = ${at}`),
        steady: (ref) => ofApp(ref, sql`crashes = 0, next_start_at = null`),
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
            select ${instanceColumns(api)} from app_instance
            where org_id = ${orgId}::uuid and app_uid = ${app}::uuid and ${inOrg(api, orgId)}
            order by app_instance.uid desc limit ${limit}::int`),
        auditExec: (orgId, instance, program, actor) =>
          Effect.asVoid(
            repeatable(api`
              with started as (select ${`${instance} ${storableText(program, 200)}`}::text as id)
              ${auditOf(api, orgId, { ...actor, outcome: 200 }, "started")}`)
          ),
        row: (orgId, app) =>
          Effect.map(
            repeatable(api<AppRow>`
              select ${rowColumns(api)} from app
              where org_id = ${orgId}::uuid and uid = ${app}::uuid and ${inOrg(api, orgId)}`),
            ([row]) => Option.fromUndefinedOr(row)
          )
      })
    })
  )
}
