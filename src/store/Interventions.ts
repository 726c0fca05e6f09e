/** What an operator does about a resource by hand: retry, pause, resume, abandon. Each is audited and told in its history. */
import { randomUUIDv7 } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type { Json } from "#schemas/kind.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { auditOf } from "./audit-cte.ts"
import { Db, inOrg, orUnavailable } from "./Db.ts"
import type { Actor } from "./records.ts"
import { afterLock, dueNow, lockWork } from "./work-rows.ts"

export interface PauseTarget {
  readonly scope: "resource" | "project" | "kind" | "organization"
  /** Uid, project id or kind; empty for the organization. */
  readonly target: string
}

export class Interventions extends Context.Service<
  Interventions,
  {
    /** Makes the resource due at once and answers a token that shows up once a look that began later has ended. */
    readonly retry: (orgId: string, uid: string, actor: Actor) => Effect.Effect<string, StoreUnavailable>
    /** Pausing what is paused replaces reason and end. */
    readonly pause: (
      orgId: string,
      pause: PauseTarget & { readonly reason: string; readonly until: Date | null },
      actor: Actor
    ) => Effect.Effect<void, StoreUnavailable>
    readonly resume: (
      orgId: string,
      target: PauseTarget,
      actor: Actor
    ) => Effect.Effect<void, StoreUnavailable>
    /**
     * Drops the row and leaves the real thing where it is. Answers the last status; none when the resource still
     * contains others, which would be orphaned.
     */
    readonly abandon: (
      orgId: string,
      uid: string,
      reason: string,
      actor: Actor
    ) => Effect.Effect<Option.Option<Json | null>, StoreUnavailable>
  }
>()("svc/store/Interventions") {
  static readonly layer = Layer.effect(
    Interventions,
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      /** CTEs: the intervention is audited whether or not it met anything. */
      const audited = (orgId: string, resource: string, actor: Actor) => sql`
        about as (select ${resource}::text as id), audited as (${auditOf(sql, orgId, actor, "about")})`
      const event = (orgId: string, uid: string, reason: string, message: string, actor: Actor) => sql`
        insert into resource_event (org_id, uid, type, reason, message, actor)
        select ${orgId}::uuid, ${uid}::uuid, 'Normal', ${reason}::text, ${message}::text, ${actor.principal}::text
        where ${inOrg(sql, orgId)}`
      /** Makes everything that a pause covers due, so that its conditions tell the truth at once. */
      const touch = (orgId: string, { scope, target }: PauseTarget) => sql`
        with touched as (
          update work w set ${dueNow(sql)}
          from resource r
          where r.org_id = ${orgId}::uuid and w.org_id = r.org_id and w.uid = r.uid and r.deleted_at is null
            and ${inOrg(sql, orgId)}
            and case ${scope}::text
              when 'resource' then r.uid::text = ${target}::text
              when 'project' then ${target}::text in (r.uid::text, r.project_id::text)
              when 'kind' then r.kind = ${target}::text
              else true end
          returning w.uid
        )
        select pg_notify('svc_work', '') from touched limit 1`

      return Interventions.of({
        retry: Effect.fn("Interventions.retry")(function* (orgId, uid, actor) {
          const token = randomUUIDv7()
          yield* orUnavailable(sql`
            with touched as (
              update work w set retry_token = ${token}, attempt = 0, waiting_on = null, ${dueNow(sql)}
              where w.org_id = ${orgId}::uuid and w.uid = ${uid}::uuid and ${inOrg(sql, orgId)}
              returning uid
            ), told as (${event(orgId, uid, "RetryRequested", "A look was asked for", actor)}),
            ${audited(orgId, uid, actor)}
            select pg_notify('svc_work', '') from touched`)
          return token
        }),
        pause: Effect.fn("Interventions.pause")(function* (orgId, { scope, target, reason, until }, actor) {
          yield* orUnavailable(sql`
            with paused as (
              insert into pause (id, org_id, scope, target, reason, paused_by, until)
              select ${randomUUIDv7()}::uuid, ${orgId}::uuid, ${scope}::text, ${target}::text, ${reason}::text,
                ${actor.principal}::text, ${until?.toISOString() ?? null}::timestamptz
              where ${inOrg(sql, orgId)}
              on conflict (org_id, scope, target) do update set reason = excluded.reason, until = excluded.until,
                paused_by = excluded.paused_by, paused_at = now()
            ), ${audited(orgId, target, actor)}
            select 1`)
          if (scope === "resource")
            yield* orUnavailable(event(orgId, target, "Paused", `Paused: ${reason}`, actor))
          yield* orUnavailable(touch(orgId, { scope, target }))
        }),
        resume: Effect.fn("Interventions.resume")(function* (orgId, { scope, target }, actor) {
          yield* orUnavailable(sql`
            with resumed as (
              delete from pause where org_id = ${orgId}::uuid and scope = ${scope} and target = ${target}
                and ${inOrg(sql, orgId)}
            ), ${audited(orgId, target, actor)}
            select 1`)
          if (scope === "resource")
            yield* orUnavailable(event(orgId, target, "Resumed", "Reconciling goes on", actor))
          yield* orUnavailable(touch(orgId, { scope, target }))
        }),
        abandon: Effect.fn("Interventions.abandon")(function* (orgId, uid, reason, actor) {
          const [row] = yield* orUnavailable(sql<{ readonly status: Json | null }>`
            with chosen as (select ${uid}::uuid as uid),
            ${lockWork(sql, orgId, "chosen", inOrg(sql, orgId))},
            target as (
              select r.uid, r.status from resource r
              where r.org_id = ${orgId}::uuid and r.uid = ${uid}::uuid and r.deleted_at is null and ${inOrg(sql, orgId)}
                and ${afterLock(sql)}
                and not exists (select from resource c where c.org_id = r.org_id and c.parent_uid = r.uid
                  and c.deleted_at is null)
              for update
            ), gone as (
              update resource r set deleted_at = now(), spec = '{}', status = null, conditions = '[]',
                differences = '[]', phase = 'deleted', deletion_requested_at = coalesce(deletion_requested_at, now()),
                revision = nextval('resource_revision'), txid = pg_current_xact_id()
              from target t where r.org_id = ${orgId}::uuid and r.uid = t.uid and ${inOrg(sql, orgId)}
              returning r.uid, r.parent_uid
            ), unqueued as (
              delete from work w using gone g where w.org_id = ${orgId}::uuid and w.uid = g.uid and ${inOrg(sql, orgId)}
            ), unsealed as (
              delete from secret s using gone g where s.org_id = ${orgId}::uuid and s.uid = g.uid and ${inOrg(sql, orgId)}
            ), affected as (
              update work w set waiting_on = null, ${dueNow(sql)}
              from gone g where w.org_id = ${orgId}::uuid and (w.uid = g.parent_uid or w.waiting_on = g.uid)
                and ${inOrg(sql, orgId)}
            ), told as (
              insert into resource_event (org_id, uid, type, reason, message, actor)
              select ${orgId}::uuid, t.uid, 'Warning', 'Abandoned',
                ${`Forgotten without removing the real thing: ${reason}. Left behind: `}::text || coalesce(t.status::text, 'unknown'),
                ${actor.principal}::text
              from target t where ${inOrg(sql, orgId)}
            ), ${audited(orgId, uid, actor)}
            select t.status, pg_notify('svc_work', ''), pg_notify('svc_change', ${orgId}::text) from target t`)
          return row === undefined ? Option.none() : Option.some(row.status)
        })
      })
    })
  )
}
