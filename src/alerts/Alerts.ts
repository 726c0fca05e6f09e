/** Alerts as requests see them: how each stands, who has seen it, and who wants to hear nothing of it for a while. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Fragment } from "effect/sql/Statement"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, inOrg, orUnavailable, repeatable, type Sql } from "#src/store/Db.ts"
import type { Actor } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { resourceOf } from "./evaluation.ts"
import { rules, worst } from "./measured.ts"
import type { AlertResource, AlertState } from "./words.ts"

/** Times within its parts are text, as the store writes them into JSON. */
export interface AlertStanding {
  readonly uid: string
  /** Whatever a silence says. */
  readonly state: Exclude<AlertState, "silenced">
  readonly since: Date
  /** The worst that is measured now; null: nothing is. */
  readonly measured: { readonly value: number; readonly resource: AlertResource; readonly at: string } | null
  /** Present while it fires. */
  readonly incident: {
    readonly id: string
    readonly resource: AlertResource | null
    readonly value: number | null
    readonly notifiedAt: string | null
    readonly acknowledgedAt: string | null
    readonly acknowledgedBy: string | null
    readonly dataLostAt: string | null
  } | null
  readonly silence: { readonly until: string; readonly by: string; readonly reason: string | null } | null
}

interface Ref {
  readonly orgId: string
  readonly uid: string
}

export class Alerts extends Context.Service<
  Alerts,
  {
    /** By uid. What is not in force yet is not among them. */
    readonly standing: (
      orgId: string,
      uids: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyMap<string, AlertStanding>, StoreUnavailable>
    /**
     * Tells nobody that it fires for so many seconds; none ends a silence. What still fires then is told. False: it is not
     * in force yet.
     */
    readonly silence: (
      ref: Ref,
      how: { readonly seconds: number; readonly reason: string | null },
      actor: Actor
    ) => Effect.Effect<boolean, StoreUnavailable>
    /** What fires is known to somebody: nobody else is told of it. False: it does not fire. */
    readonly acknowledge: (ref: Ref, actor: Actor) => Effect.Effect<boolean, StoreUnavailable>
  }
>()("svc/alerts/Alerts") {
  static readonly layer = Layer.effect(
    Alerts,
    Effect.gen(function* () {
      const { api: sql } = yield* Db

      /** Changes the row, remembers that and audits it. */
      const change = (
        { orgId, uid }: Ref,
        actor: Actor,
        set: Fragment,
        where: Fragment,
        remembered: { readonly change: string; readonly reason: string | null }
      ) => {
        const gate = inOrg(sql, orgId)
        return Effect.map(
          orUnavailable(sql`
            with changed as (
              update alert a set version = a.version + 1, ${set}
              where a.org_id = ${orgId}::uuid and a.uid = ${uid}::uuid and ${where} and ${gate}
              returning a.uid as id, a.incident_id
            ), remembered as (
              insert into alert_history (org_id, alert_uid, change, incident_id, actor, reason)
              select ${orgId}::uuid, id, ${remembered.change}::text, incident_id, ${actor.principal}::text,
                ${remembered.reason}::text
              from changed where ${gate}
            ), audited as (${auditOf(sql, orgId, actor, "changed")})
            select id from changed`),
          (rows) => rows.length > 0
        )
      }

      return Alerts.of({
        standing: Effect.fn("Alerts.standing")(function* (orgId, uids) {
          if (uids.length === 0) return new Map()
          const rows = yield* repeatable(standing(sql, orgId, uids))
          return new Map(rows.map((row) => [row.uid, row]))
        }),
        silence: (ref, { seconds, reason }, actor) =>
          seconds === 0
            ? change(
                ref,
                actor,
                sql`silenced_until = null, silenced_by = null, silence_reason = null`,
                sql`true`,
                { change: "unsilenced", reason }
              )
            : change(
                ref,
                actor,
                sql`silenced_until = now() + make_interval(secs => ${seconds}::float8),
                  silenced_by = ${actor.principal}::text, silence_reason = ${reason}::text`,
                sql`true`,
                { change: "silenced", reason }
              ),
        acknowledge: (ref, actor) =>
          change(
            ref,
            actor,
            sql`acknowledged_at = coalesce(a.acknowledged_at, now()),
              acknowledged_by = coalesce(a.acknowledged_by, ${actor.principal}::text)`,
            sql`a.state = 'firing'`,
            { change: "acknowledged", reason: null }
          )
      })
    })
  )
}

const standing = (sql: Sql, orgId: string, uids: ReadonlyArray<string>) => {
  const gate = inOrg(sql, orgId)
  return sql<AlertStanding>`
    with mine as materialized (
      ${rules(sql, sql`alert a`)} where a.org_id = ${orgId}::uuid and a.uid = any (${uids}::uuid[]) and ${gate}
    ), ${worst(sql, "mine", gate)}
    select a.uid, a.state, a.state_since as since,
      case when a.worst_uid is not null then jsonb_build_object('value', a.worst_value, 'at', a.worst_at,
        'resource', ${resourceOf(sql, "a.org_id", "a.worst_uid")}) end
        as measured,
      case when a.incident_id is not null then jsonb_build_object('id', a.incident_id, 'resource', a.resource,
        'value', a.value, 'notifiedAt', a.told_at, 'acknowledgedAt', a.acknowledged_at,
        'acknowledgedBy', a.acknowledged_by, 'dataLostAt', a.data_lost_at) end as incident,
      case when a.silenced_until > now() then jsonb_build_object('until', a.silenced_until, 'by', a.silenced_by,
        'reason', a.silence_reason) end as silence
    from worst a`
}
