/** Handlers of `orgs.*` about members. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import { answer } from "#src/api/answer.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { fromStore, notFound, type Problem, problem } from "#src/api/problem.ts"
import { MemberList, MemberView } from "../api/members.ts"
import { type Member, Members, type Objection } from "../Members.ts"
import { notAllowed, theUser } from "./people.ts"

const view = (member: Member) => ({
  id: member.id,
  userId: member.userId,
  email: member.email,
  name: member.name,
  role: member.role,
  createdAt: member.createdAt.toISOString()
})

const objections: Readonly<Record<Objection, Problem>> = {
  missing: notFound("member"),
  not_allowed: notAllowed,
  owners_only: problem(403, "forbidden", "Only an owner makes somebody an owner, demotes or removes one"),
  personal: problem(
    422,
    "personal_organization",
    "A personal organization keeps the person it was made for as its owner"
  ),
  last_owner: problem(
    422,
    "last_owner",
    "The last owner can be neither removed nor demoted; make somebody else an owner first"
  )
}

export const layer = HttpApiBuilder.group(
  Api,
  "members",
  Effect.fnUntraced(function* (handlers) {
    const members = yield* Members
    return handlers.handleAll(
      handlersOf(Api.groups.members)({
        list: Effect.fnUntraced(function* () {
          const { orgId } = yield* RequestScope
          const found = yield* Effect.mapError(members.list(orgId), fromStore)
          return answer(MemberList, found.map(view))
        }),
        update: Effect.fnUntraced(function* ({ params, payload }) {
          const { orgId, caller } = yield* RequestScope
          const changed = yield* Effect.mapError(
            members.setRole(orgId, params.memberId, payload.role, yield* theUser, caller.actor),
            fromStore
          )
          if (typeof changed === "string") return yield* objections[changed]
          return answer(MemberView, view(changed))
        }),
        remove: Effect.fnUntraced(function* ({ params }) {
          const { orgId, caller } = yield* RequestScope
          const objection = yield* Effect.mapError(
            members.remove(orgId, params.memberId, yield* theUser, caller.actor),
            fromStore
          )
          if (objection !== undefined) return yield* objections[objection]
          return { ok: true as const }
        })
      })
    )
  })
)
