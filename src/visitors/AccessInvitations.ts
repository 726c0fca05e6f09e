/** E-mail addresses whose accounts may see the environments of a project that are `invite_only`. No mail is sent. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, inOrg, orUnavailable, repeatable, type Sql } from "#src/store/Db.ts"
import type { Actor } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface AccessInvitation {
  readonly id: string
  readonly email: string
  readonly createdAt: Date
}

/** Of one project. */
export const mostInvitations = 1_000

export class AccessInvitations extends Context.Service<
  AccessInvitations,
  {
    /** By address. */
    readonly list: (
      orgId: string,
      projectId: string
    ) => Effect.Effect<ReadonlyArray<AccessInvitation>, StoreUnavailable>
    /** An address that is invited already is answered as it is. None: there are too many. `email` is normalized. */
    readonly add: (
      orgId: string,
      projectId: string,
      invited: { readonly id: string; readonly email: string },
      actor: Actor
    ) => Effect.Effect<Option.Option<AccessInvitation>, StoreUnavailable>
    /** False: there is no such invitation. */
    readonly remove: (
      orgId: string,
      projectId: string,
      id: string,
      actor: Actor
    ) => Effect.Effect<boolean, StoreUnavailable>
  }
>()("svc/visitors/AccessInvitations") {
  static readonly layer = Layer.effect(
    AccessInvitations,
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      return AccessInvitations.of({
        list: Effect.fn("AccessInvitations.list")(function* (orgId, projectId) {
          return yield* repeatable(sql<AccessInvitation>`
            select ${columns(sql)} from access_invitation
            where org_id = ${orgId}::uuid and project_id = ${projectId}::uuid and ${inOrg(sql, orgId)}
            order by email`)
        }),
        add: Effect.fn("AccessInvitations.add")(function* (orgId, projectId, { id, email }, actor) {
          const gate = inOrg(sql, orgId)
          const [row] = yield* repeatable(sql<AccessInvitation>`
            with there as materialized (
              select * from access_invitation
              where org_id = ${orgId}::uuid and project_id = ${projectId}::uuid and ${gate}
            ), added as (
              insert into access_invitation (org_id, id, project_id, email)
              select ${orgId}::uuid, ${id}::uuid, ${projectId}::uuid, ${email}::text
              where ${gate} and (select count(*) from there) < ${mostInvitations}::int
                and not exists (select from there where email = ${email}::text)
              on conflict (org_id, project_id, email) do update set email = excluded.email
              returning *
            ), audited as (${auditOf(sql, orgId, actor, "added")})
            select ${columns(sql)} from (
              select * from added union all select * from there where email = ${email}::text) found`)
          return Option.fromUndefinedOr(row)
        }),
        remove: Effect.fn("AccessInvitations.remove")(function* (orgId, projectId, id, actor) {
          const rows = yield* orUnavailable(sql`
            with removed as (
              delete from access_invitation
              where org_id = ${orgId}::uuid and project_id = ${projectId}::uuid and id = ${id}::uuid
                and ${inOrg(sql, orgId)}
              returning id
            ), audited as (${auditOf(sql, orgId, actor, "removed")})
            select id from removed`)
          return rows.length > 0
        })
      })
    })
  )
}

const columns = (sql: Sql) => sql`id, email, created_at as "createdAt"`
