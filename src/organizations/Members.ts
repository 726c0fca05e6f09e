/**
 * Who belongs to an organization, and the rules of changing that.
 *
 * Only owners make or unmake owners. One owner always stays: a change locks the rows of all owners, in one order, so
 * that of two that would leave none the second finds the first. In a personal organization that owner is the person
 * it was made for. What the caller may do is read under the same locks, not taken from the beginning of the request.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Role } from "#schemas/kind.ts"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, inOrg, orUnavailable, repeatable, type Sql } from "#src/store/Db.ts"
import type { Actor } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface Member {
  readonly id: string
  readonly userId: string
  readonly email: string
  readonly name: string
  readonly role: Role
  readonly createdAt: Date
}

/** Why a change of membership is not made. */
export type Objection =
  /** There is no such member. */
  | "missing"
  /** The caller may not change members, any more. */
  | "not_allowed"
  /** Owners are made and unmade by owners. */
  | "owners_only"
  /** A personal organization keeps the person that it was made for. */
  | "personal"
  | "last_owner"

export class Members extends Context.Service<
  Members,
  {
    /** In the order in which they joined. */
    readonly list: (orgId: string) => Effect.Effect<ReadonlyArray<Member>, StoreUnavailable>
    readonly setRole: (
      orgId: string,
      memberId: string,
      role: Role,
      caller: string,
      actor: Actor
    ) => Effect.Effect<Member | Objection, StoreUnavailable>
    /**
     * Whatever the member made that opens the organization ends with the membership. (A trigger of the store ends grants
     * to agents, here and where a role is lowered.)
     */
    readonly remove: (
      orgId: string,
      memberId: string,
      caller: string,
      actor: Actor
    ) => Effect.Effect<Objection | undefined, StoreUnavailable>
  }
>()("svc/organizations/Members") {
  static readonly layer = Layer.effect(
    Members,
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      return Members.of({
        list: Effect.fn("Members.list")(function* (orgId) {
          return yield* repeatable(sql<Member>`
            select ${columns(sql)} from svc_members() m where ${inOrg(sql, orgId)} order by m.created_at, m.id`)
        }),
        setRole: Effect.fn("Members.setRole")(function* (orgId, memberId, role, caller, actor) {
          const gate = inOrg(sql, orgId)
          const [row] = yield* orUnavailable(sql<Member & { readonly objection: Objection | null }>`
            with ${considered(sql, orgId, memberId, role, caller)},
            changed as (
              update member set role = ${role}
              from decision v
              where org_id = ${orgId}::uuid and id = ${memberId}::uuid and v.objection is null and ${gate}
              returning id, user_id, role
            ),
            -- Whom a member could invite no more, that member's open invitations should not bring in.
            withdrawn as (
              update invitation i set revoked_at = now() from changed c
              where i.org_id = ${orgId}::uuid and i.invited_by = c.user_id and c.role = 'member'
                and i.accepted_at is null and i.revoked_at is null and ${gate}
            ),
            audited as (${auditOf(sql, orgId, actor, "changed")})
            select v.objection, m.id, m.user_id as "userId", m.email, m.name, c.role, m.created_at as "createdAt"
            from decision v left join changed c on true left join svc_members() m on m.id = c.id where ${gate}`)
          return row === undefined ? "missing" : (row.objection ?? row)
        }),
        remove: Effect.fn("Members.remove")(function* (orgId, memberId, caller, actor) {
          const gate = inOrg(sql, orgId)
          const [row] = yield* orUnavailable(sql<{ readonly objection: Objection | null }>`
            with ${considered(sql, orgId, memberId, null, caller)},
            removed as (
              delete from member m using decision v
              where m.org_id = ${orgId}::uuid and m.id = ${memberId}::uuid and v.objection is null and ${gate}
              returning m.id, m.user_id
            ), keys as (
              update api_key k set revoked_at = now() from removed r
              where k.org_id = ${orgId}::uuid and k.created_by = r.user_id and k.revoked_at is null and ${gate}
            ), withdrawn as (
              update invitation i set revoked_at = now() from removed r
              where i.org_id = ${orgId}::uuid and i.invited_by = r.user_id
                and i.accepted_at is null and i.revoked_at is null and ${gate}
            ),
            audited as (${auditOf(sql, orgId, actor, "removed")})
            select v.objection from decision v`)
          return row === undefined ? "missing" : (row.objection ?? undefined)
        })
      })
    })
  )
}

const columns = (sql: Sql) => sql`
  m.id, m.user_id as "userId", m.email, m.name, m.role, m.created_at as "createdAt"`

/**
 * CTEs that end in `decision`, one row with the objection or null. `role` null stands for leaving. Somebody else's
 * change under way is waited for: a row that it took the owner's role from drops out of `held`.
 */
const considered = (sql: Sql, orgId: string, memberId: string, role: Role | null, caller: string) => sql`
  held as materialized (
    select id, user_id, role from member
    where org_id = ${orgId}::uuid and ${inOrg(sql, orgId)}
      and (role = 'owner' or id = ${memberId}::uuid or user_id = ${caller}::uuid)
    order by id for update
  ),
  caller as (select role from held where user_id = ${caller}::uuid),
  target as (select id, role from held where id = ${memberId}::uuid),
  decision as materialized (
    select case
      when not exists (select from caller where role in ('owner', 'admin')) then 'not_allowed'
      when not exists (select from target) then 'missing'
      when not exists (select from caller where role = 'owner')
        and (t.role = 'owner' or ${role}::text is not distinct from 'owner') then 'owners_only'
      when t.role <> 'owner' or ${role}::text is not distinct from 'owner' then null
      when o.is_personal and t.id = (select id from member first where first.org_id = o.id order by id limit 1)
        then 'personal'
      when not exists (select from held where role = 'owner' and id <> t.id) then 'last_owner'
    end as objection
    from organization o left join target t on true
    where o.id = ${orgId}::uuid and ${inOrg(sql, orgId)}
  )`
