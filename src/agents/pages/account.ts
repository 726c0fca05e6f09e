/** The account's page of agents. */
import * as Effect from "effect/Effect"
import { looksLikeUid } from "#schemas/names.ts"
import { CurrentRequest } from "#src/access/CurrentRequest.ts"
import type { agentPaths } from "#src/api/page-paths.ts"
import { goTo, type HandlersOf, somebody } from "#src/identity/pages/handling.ts"
import { posted } from "#src/identity/pages/posted.ts"
import { AgentGrants } from "../AgentGrants.ts"
import { grants } from "./grants.ts"

const path = "/account/agents"

type Route = Extract<keyof HandlersOf<typeof agentPaths>, `${string} /account/${string}`>

export const accountPages = Effect.gen(function* () {
  const agentGrants = yield* AgentGrants
  const signedIn = yield* somebody

  const handlers: Pick<HandlersOf<typeof agentPaths>, Route> = {
    "GET /account/agents": Effect.fnUntraced(function* (query) {
      const { userId } = yield* signedIn(path)
      const done = query.get("done") === "revoked" ? "It may do nothing any more." : undefined
      return grants(yield* agentGrants.ofUser(userId), done)
    }),
    "POST /account/agents/revoke": Effect.fnUntraced(function* () {
      const form = yield* posted
      const { userId } = yield* signedIn(path)
      const [orgId, grantId] = [form.text("organization"), form.text("grant")]
      if (!looksLikeUid(orgId) || !looksLikeUid(grantId)) return goTo(path)
      const { id, address } = yield* CurrentRequest
      yield* agentGrants.revoke(orgId, grantId, userId, {
        principal: `user:${userId}`,
        credential: "session",
        operation: "agentGrants.revoke",
        requestId: id,
        address,
        outcome: 200
      })
      return goTo(`${path}?done=revoked`)
    })
  }
  return handlers
})
