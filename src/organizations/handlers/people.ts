/** What the handlers about people share. */
import * as Effect from "effect/Effect"
import { RequestScope } from "#src/api/definition/scope.ts"
import { notFound, problem } from "#src/api/problem.ts"

/** The rights of the caller ended while the request was under way. */
export const notAllowed = problem(403, "forbidden", "Your role in the organization does not allow this")
export const noOrganization = notFound("organization")

/** The signed-in user. Operations that take sessions only always have one. */
export const theUser = Effect.flatMap(RequestScope, ({ caller }) =>
  caller.userId === null ? Effect.fail(notAllowed) : Effect.succeed(caller.userId)
)
