/** What people granted to agents in an organization. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, inOrg, orUnavailable, repeatable } from "#src/store/Db.ts"
import type { Actor } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface AgentGrant {
  readonly grantId: string
  readonly userId: string
  /** Null: that person is no member any more. */
  readonly userEmail: string | null
  readonly clientId: string
  readonly clientName: string
  readonly audience: string
  readonly role: "admin" | "member"
  readonly scopes: ReadonlyArray<string>
  readonly createdAt: Date
  readonly lastUsedAt: Date | null
  /** It ends then, unless its tokens are refreshed before. */
  readonly expiresAt: Date
  readonly revokedAt: Date | null
}

/** A grant that holds, as its user sees it. */
export interface OwnGrant
  extends Pick<
    AgentGrant,
    "grantId" | "clientName" | "role" | "scopes" | "createdAt" | "lastUsedAt" | "expiresAt"
  > {
  readonly orgId: string
  readonly organization: string
}

/** Who stands behind a grant, for records of what was done with it. */
export type GrantNames = Pick<AgentGrant, "grantId" | "userId" | "clientId" | "clientName">

export class AgentGrants extends Context.Service<
  AgentGrants,
  {
    /** Of one user, or of all (null); oldest first. What ended more than 30 days ago is left out. */
    readonly list: (
      orgId: string,
      userId: string | null
    ) => Effect.Effect<ReadonlyArray<AgentGrant>, StoreUnavailable>
    /** Those of one user that hold, in all organizations; the newest first. */
    readonly ofUser: (userId: string) => Effect.Effect<ReadonlyArray<OwnGrant>, StoreUnavailable>
    /** Those of the grants that there are. */
    readonly names: (
      orgId: string,
      ids: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyArray<GrantNames>, StoreUnavailable>
    /** When it was revoked, which repeating it does not change. None: there is no such grant of that user. */
    readonly revoke: (
      orgId: string,
      id: string,
      userId: string | null,
      actor: Actor
    ) => Effect.Effect<Option.Option<Date>, StoreUnavailable>
  }
>()("svc/agents/AgentGrants") {
  static readonly layer = Layer.effect(
    AgentGrants,
    Effect.gen(function* () {
      const { api: sql, engine } = yield* Db
      return AgentGrants.of({
        list: Effect.fn("AgentGrants.list")(function* (orgId, userId) {
          return yield* repeatable(sql<AgentGrant>`
            select g.id as "grantId", g.user_id as "userId", m.email as "userEmail", g.client_id as "clientId",
              g.client_name as "clientName", g.audience, g.role, g.scopes, g.created_at as "createdAt",
              g.last_used_at as "lastUsedAt", g.expires_at as "expiresAt", g.revoked_at as "revokedAt"
            from agent_grant g left join svc_members() m on m.user_id = g.user_id
            where g.org_id = ${orgId}::uuid and (${userId}::uuid is null or g.user_id = ${userId}::uuid)
              and coalesce(g.revoked_at, g.expires_at) > now() - interval '30 days' and ${inOrg(sql, orgId)}
            order by g.created_at, g.id`)
        }),
        names: Effect.fn("AgentGrants.names")(function* (orgId, ids) {
          if (ids.length === 0) return []
          return yield* repeatable(sql<GrantNames>`
            select id as "grantId", user_id as "userId", client_id as "clientId", client_name as "clientName"
            from agent_grant
            where org_id = ${orgId}::uuid and ${inOrg(sql, orgId)}
              and id in (select value::uuid from jsonb_array_elements_text(${sql.json(ids)}::jsonb))`)
        }),
        // Indexes: member_user_id_org_id_key, agent_grant_user.
        ofUser: Effect.fn("AgentGrants.ofUser")(function* (userId) {
          return yield* repeatable(engine<OwnGrant>`
            select g.id as "grantId", g.org_id as "orgId", o.name as organization, g.client_name as "clientName", g.role,
              g.scopes, g.created_at as "createdAt", g.last_used_at as "lastUsedAt", g.expires_at as "expiresAt"
            from member m join organization o on o.id = m.org_id and o.deletion_requested_at is null
            join agent_grant g on g.org_id = m.org_id and g.user_id = m.user_id
            where m.user_id = ${userId}::uuid and g.revoked_at is null and g.expires_at > now()
            order by g.created_at desc, g.id desc`)
        }),
        revoke: Effect.fn("AgentGrants.revoke")(function* (orgId, id, userId, actor) {
          const [row] = yield* orUnavailable(sql<{ readonly revokedAt: Date }>`
            with g as (
              update agent_grant set revoked_at = coalesce(revoked_at, now())
              where org_id = ${orgId}::uuid and id = ${id}::uuid and ${inOrg(sql, orgId)}
                and (${userId}::uuid is null or user_id = ${userId}::uuid)
              returning id, revoked_at
            ), audited as (${auditOf(sql, orgId, actor, "g")})
            select revoked_at as "revokedAt" from g`)
          return Option.map(Option.fromUndefinedOr(row), ({ revokedAt }) => revokedAt)
        })
      })
    })
  )
}
