/** How instances come and go: a row for each, from before its container is made until after that is gone. */
import { storableText } from "#src/storable.ts"
import { repeatable, type Sql } from "#src/store/Db.ts"
import type { Change, Crashed, FencedApp } from "./app-state.ts"
import { any, fencedChanges } from "./fenced-changes.ts"

/** Ended instances of an app that are kept with what they printed, besides by their age. */
export const keptInstances = 20

export interface InstanceChanges {
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
  /** With what its container may use, which its app may want otherwise by then. */
  readonly making: (
    ref: FencedApp,
    instance: string,
    size: { readonly cpus: number; readonly memoryMb: number }
  ) => Change
  readonly started: (ref: FencedApp, instance: string, address: string, at: Date) => Change
  readonly healthy: (ref: FencedApp, instance: string) => Change
  /** Checks in a row that a healthy one did not answer; with `after` so many that another is to take its place. */
  readonly checked: (
    ref: FencedApp,
    instance: string,
    how: { readonly at: Date; readonly unanswered: number },
    after: Crashed | undefined
  ) => Change
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
  readonly removed: (ref: FencedApp, instance: string) => Change
}

export const makeInstanceChanges = (sql: Sql): InstanceChanges => {
  const { mine, ofInstance, crashed, rejectedIf } = fencedChanges(sql)
  return {
    // Index: app_instance_app.
    add: (ref, { uid, deployment, revision, port, at }) =>
      any(
        repeatable(sql`
          with another as (
            -- What another version did says nothing of this one. While what answers is started again, what was given
            -- up stays so.
            update app set crashes = 0, next_start_at = null, ${rejectedIf(sql`serving_revision = ${revision}`)}
            where ${mine(ref)} and ${revision} is distinct from (select i.revision from app_instance i
                where i.org_id = app.org_id and i.app_uid = app.uid order by i.uid desc limit 1)
          )
          insert into app_instance (org_id, uid, app_uid, deployment_uid, revision, port, made_at)
          select org_id, ${uid}::uuid, uid, ${deployment}::uuid, ${revision}, ${port}::int, ${at}
          from app where ${mine(ref)}
          on conflict do nothing
          returning uid`)
      ),
    making: (ref, uid, { cpus, memoryMb }) =>
      ofInstance(
        ref,
        uid,
        sql`container_made = true, cpus = ${cpus}::numeric, memory_mb = ${memoryMb}::int`,
        sql`state = 'starting'`
      ),
    started: (ref, uid, address, at) =>
      ofInstance(
        ref,
        uid,
        sql`address = ${address}, started_at = ${at}`,
        sql`state in ('starting', 'healthy')`
      ),
    healthy: (ref, uid) =>
      ofInstance(ref, uid, sql`state = 'healthy', healthy_at = now()`, sql`state = 'starting'`),
    checked: (ref, uid, { at, unanswered }, after) =>
      any(
        repeatable(sql`
          with checked as (
            update app_instance set unanswered = ${unanswered}::int, checked_at = ${at}
            where org_id = ${ref.orgId}::uuid and app_uid = ${ref.uid}::uuid and uid = ${uid}::uuid
              and exists (select from app where ${mine(ref)})
            returning uid
          ), counted as (
            update app set ${crashed(after)} where ${mine(ref)} and exists (select from checked)
          )
          select uid from checked`)
      ),
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
            update edge_site s set target = case
                when s.target->>'address' <> g.address then s.target || jsonb_build_object('others', (
                  select coalesce(jsonb_agg(o order by ord), '[]')
                  from jsonb_array_elements(s.target->'others') with ordinality as t(o, ord)
                  where o->>'address' <> g.address))
                when s.target->'others'->0 is null then null
                else s.target->'others'->0 || jsonb_build_object('others', (s.target->'others') - 0)
              end
            from gone g, app a
            where a.org_id = ${ref.orgId}::uuid and a.uid = ${ref.uid}::uuid and s.org_id = a.org_id
              and s.environment_uid = a.environment_uid and s.app_uid = a.uid
              and (s.target->>'address' = g.address
                or s.target->'others' @> jsonb_build_array(jsonb_build_object('address', g.address)))
          ), counted as (
            update app set ${crashed(after)} where ${mine(ref)} and exists (select from gone)
          )
          select uid from gone`)
      ),
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
      )
  }
}
