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
  readonly clientId: string
  readonly clientName: string
  readonly audience: string
  readonly role: "admin" | "member"
  readonly scopes: ReadonlyArray<string>
  readonly createdAt: Date
  readonly lastUsedAt: Date | null
  readonly revokedAt: Date | null
}

export class AgentGrants extends Context.Service<
  AgentGrants,
  {
    /** Of one user, or of all (null); oldest first. */
    readonly list: (
      orgId: string,
      userId: string | null
    ) => Effect.Effect<ReadonlyArray<AgentGrant>, StoreUnavailable>
    /** When it was revoked, which repeating it does not change. None: there is no such grant of that user. */
    readonly revoke: (
      orgId: string,
      id: string,
      userId: string | null,
      actor: Actor
    ) => Effect.Effect<Option.Option<Date>, StoreUnavailable>
  }
>()("svc/organizations/AgentGrants") {
  static readonly layer = Layer.effect(
    AgentGrants,
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      return AgentGrants.of({
        list: Effect.fn("AgentGrants.list")(function* (orgId, userId) {
          return yield* repeatable(sql<AgentGrant>`
            select id as "grantId", user_id as "userId", client_id as "clientId", client_name as "clientName", audience,
              role, scopes, created_at as "createdAt", last_used_at as "lastUsedAt", revoked_at as "revokedAt"
            from agent_grant
            where org_id = ${orgId}::uuid and (${userId}::uuid is null or user_id = ${userId}::uuid)
              and ${inOrg(sql, orgId)}
            order by created_at, id`)
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
