/** Handlers of `agentGrants.*`. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import { answer } from "#src/api/answer.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { fromStore, notFound } from "#src/api/problem.ts"
import { theUser } from "#src/organizations/handlers/people.ts"
import { AgentGrants } from "./AgentGrants.ts"
import { AgentGrantList } from "./api.ts"

/** Whose grants the caller may see: admins everybody's (null), members their own. */
const reach = Effect.flatMap(RequestScope, ({ role }) => (role === "member" ? theUser : Effect.succeed(null)))

export const layer = HttpApiBuilder.group(
  Api,
  "agentGrants",
  Effect.fnUntraced(function* (handlers) {
    const grants = yield* AgentGrants
    return handlers.handleAll(
      handlersOf(Api.groups.agentGrants)({
        list: Effect.fnUntraced(function* () {
          const { orgId } = yield* RequestScope
          const found = yield* Effect.mapError(grants.list(orgId, yield* reach), fromStore)
          return answer(
            AgentGrantList,
            found.map((grant) => ({
              ...grant,
              createdAt: grant.createdAt.toISOString(),
              lastUsedAt: grant.lastUsedAt?.toISOString() ?? null,
              expiresAt: grant.expiresAt.toISOString(),
              revokedAt: grant.revokedAt?.toISOString() ?? null
            }))
          )
        }),
        revoke: Effect.fnUntraced(function* ({ params }) {
          const { orgId, caller } = yield* RequestScope
          const at = yield* Effect.mapError(
            grants.revoke(orgId, params.grantId, yield* reach, caller.actor),
            fromStore
          )
          return Option.isSome(at) ? { revokedAt: at.value.toISOString() } : yield* notFound("grant")
        })
      })
    )
  })
)
