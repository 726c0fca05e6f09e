/** The rules in force, as their reconciler puts them there; `evaluation.ts` goes by them. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { type AlertSpec, scopeKinds, thresholdOf } from "#schemas/alert.ts"
import { Db, orUnavailable, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { removal } from "./evaluation.ts"

interface Ref {
  readonly orgId: string
  readonly uid: string
}

export interface Rule extends Ref {
  readonly projectId: string
  readonly name: string
  readonly config: AlertSpec
}

export interface RuleLook {
  /** As it is in force; undefined: it is not. Another release may have stored what this one does not read. */
  readonly inForce:
    | {
        readonly projectId: string
        readonly name: string
        readonly config: unknown
        readonly threshold: number
      }
    | undefined
  /** Fields of the scope that name what is not there. */
  readonly missing: ReadonlyArray<string>
  /** Addresses of mail channels that no member has. */
  readonly strangers: ReadonlyArray<string>
}

export class AlertRules extends Context.Service<
  AlertRules,
  {
    readonly look: (rule: Rule) => Effect.Effect<RuleLook, StoreUnavailable>
    readonly remains: (ref: Ref) => Effect.Effect<boolean, StoreUnavailable>
    /** Puts a rule in force; its state stays. False: a later reconcile was here, and nothing was done. */
    readonly put: (rule: Rule & { readonly fence: bigint }) => Effect.Effect<boolean, StoreUnavailable>
    /** With state and history. False: a later reconcile was here, and nothing was done. */
    readonly remove: (ref: Ref & { readonly fence: bigint }) => Effect.Effect<boolean, StoreUnavailable>
  }
>()("svc/alerts/AlertRules") {
  static readonly layer = Layer.effect(
    AlertRules,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      return AlertRules.of({
        // Indexes: the primary key, resource_identity.
        look: Effect.fn("AlertRules.look")(function* ({ orgId, uid, projectId, config }) {
          const { environment } = config.scope
          const names = [
            { field: "environment", kind: "Environment", name: environment, place: null },
            ...(["database", "queue", "cron"] as const).map((field) => ({
              field,
              kind: scopeKinds[field],
              name: config.scope[field],
              place: environment
            }))
          ].filter(({ name }) => name !== null)
          const addresses = config.channels.flatMap(({ kind, destination }) =>
            kind === "mail" && destination !== null ? [destination] : []
          )
          const [row] = yield* repeatable(sql<{
            readonly config: unknown
            readonly projectId: string | null
            readonly name: string | null
            readonly threshold: number | null
            readonly missing: ReadonlyArray<string>
            readonly strangers: ReadonlyArray<string>
          }>`
            select a.config, a.project_id as "projectId", a.name, a.threshold,
              array(select n.field from jsonb_to_recordset(${sql.json(names)}::jsonb)
                as n(field text, kind text, name text, place text)
                where not exists (select from resource r
                  where r.org_id = ${orgId}::uuid and r.kind = n.kind and r.project_id = ${projectId}::uuid
                    and r.environment is not distinct from n.place and r.name = n.name
                    and r.deletion_requested_at is null)) as missing,
              array(select d.address from unnest(${addresses}::text[]) as d(address)
                where not exists (select from member m join account p on p.id = m.user_id
                  where m.org_id = ${orgId}::uuid and lower(p.email) = lower(d.address))) as strangers
            from (select) one left join alert a on a.org_id = ${orgId}::uuid and a.uid = ${uid}::uuid`)
          if (row === undefined) return yield* Effect.die(new Error("the rule's query answered no row"))
          const { projectId: project, name, threshold } = row
          return {
            inForce:
              project === null || name === null || threshold === null
                ? undefined
                : { projectId: project, name, config: row.config, threshold },
            missing: row.missing,
            strangers: row.strangers
          }
        }),
        remains: ({ orgId, uid }) =>
          Effect.map(
            repeatable(sql`select from alert where org_id = ${orgId}::uuid and uid = ${uid}::uuid`),
            (rows) => rows.length > 0
          ),
        // What was counted was counted by the former condition, and a resource out of the scope keeps nothing firing.
        put: Effect.fn("AlertRules.put")(function* ({ orgId, uid, projectId, name, config, fence }) {
          const rows = yield* repeatable(sql`
            with turn as (insert into alert_turn (org_id) values (${orgId}::uuid) on conflict do nothing
              returning pg_notify('svc_alert_turn', ''))
            insert into alert as a (org_id, uid, project_id, name, config, threshold, fence)
            values (${orgId}::uuid, ${uid}::uuid, ${projectId}::uuid, ${name}::text, ${sql.json(config)}::jsonb,
              ${thresholdOf(config.condition) ?? null}::float8, ${fence})
            on conflict (org_id, uid) do update set project_id = excluded.project_id, name = excluded.name,
              config = excluded.config, threshold = excluded.threshold, fence = excluded.fence,
              version = a.version + 1,
              counted_seconds = case when a.config -> 'condition' = excluded.config -> 'condition'
                and a.config -> 'scope' = excluded.config -> 'scope' then a.counted_seconds end,
              resource_uid = case when a.config #> '{condition,signal}' = excluded.config #> '{condition,signal}'
                and a.config -> 'scope' = excluded.config -> 'scope' then a.resource_uid end
              where a.fence <= excluded.fence
            returning a.uid`)
          return rows.length > 0
        }),
        remove: Effect.fn("AlertRules.remove")(function* (ref) {
          const [row] = yield* orUnavailable(sql<{ readonly newer: boolean }>`${removal(sql, ref)}`)
          return row?.newer === false
        })
      })
    })
  )
}
