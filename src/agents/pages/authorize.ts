/**
 * The authorization endpoint (RFC 6749, section 3.1). What a program asks for is stored first, and from then on the address
 * carries its id alone, so that however somebody signs in they come back to the same request. Only the form on the
 * page decides; it must come from there.
 */
import * as Effect from "effect/Effect"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Option from "effect/Option"
import { Access } from "#src/access/Access.ts"
import type { agentPaths } from "#src/api/page-paths.ts"
import { goTo, type HandlersOf, somebody, whoever } from "#src/identity/pages/handling.ts"
import { posted } from "#src/identity/pages/posted.ts"
import type { Session } from "#src/identity/Sessions.ts"
import { AuthorizationRequests, type PendingRequest } from "../AuthorizationRequests.ts"
import { RequestGone } from "../errors.ts"
import { type GrantRole, grantable, reaches } from "../scopes.ts"
import { answered } from "./answered.ts"
import { consent, here, type Refused } from "./consent.ts"
import { isLoopback } from "./destination.ts"
import { notice, over, refusal } from "./notice.ts"

/** Tells a client on the person's own machine what is wrong with its request, which no form has led to. */
const leaveFor = (url: string) =>
  HttpServerResponse.redirect(url, {
    status: 303,
    headers: { "cache-control": "no-store", "referrer-policy": "no-referrer" }
  })

const gone = new RequestGone({ message: "There is no such request" })

const operationsOf = ({ scopes }: PendingRequest) =>
  scopes.flatMap((scope) => {
    const operation = grantable.get(scope)
    return operation === undefined ? [] : [operation]
  })

const suffices = (has: string, role: GrantRole) => reaches(has === "member" ? "member" : "admin", role)

type Route = Extract<keyof HandlersOf<typeof agentPaths>, `${string} /agent/authorize`>

export const authorizePages = Effect.gen(function* () {
  const requests = yield* AuthorizationRequests
  const access = yield* Access
  const signedIn = yield* somebody
  const visitor = yield* whoever

  const show = Effect.fnUntraced(function* (pending: PendingRequest, session: Session, refused?: Refused) {
    const organizations = yield* access.organizations("session", session.id, session.userId)
    return consent(
      {
        ...pending,
        operations: operationsOf(pending),
        person: session,
        organizations: organizations.filter(({ role }) => suffices(role, pending.role))
      },
      refused
    )
  })

  const find = (id: string) =>
    Effect.flatMap(
      requests.get(id),
      Option.match({ onNone: () => Effect.fail(gone), onSome: (pending) => Effect.succeed(pending) })
    )

  const handlers: Pick<HandlersOf<typeof agentPaths>, Route> = {
    "GET /agent/authorize": Effect.fnUntraced(
      function* (query) {
        const id = query.get("pending")
        if (id === null) {
          const session = Option.getOrUndefined(yield* visitor)
          return goTo(here((yield* requests.begin(query, session?.userId)).id))
        }
        const pending = yield* find(id)
        return yield* show(pending, yield* signedIn(here(id)))
      },
      Effect.catchTags({
        AuthorizationRefused: ({ redirect, message }) =>
          Effect.succeed(
            redirect !== null && isLoopback(redirect) ? leaveFor(redirect) : refusal(message, redirect)
          ),
        RequestGone: () => Effect.succeed(over),
        TooManyRequests: ({ message, retryAfter }) =>
          Effect.succeed(
            notice(
              "Too many requests",
              `${message}. Or sign in, and begin again in the program: strangers do not hold up whoever is signed in.`,
              429,
              { "retry-after": String(retryAfter) }
            )
          )
      })
    ),
    "POST /agent/authorize": Effect.fnUntraced(
      function* () {
        const form = yield* posted
        const id = form.text("pending")
        const pending = yield* find(id)
        const session = yield* signedIn(here(id))
        const organization = form.text("organization")
        const ticked = new Set(form.all("scope"))
        // The page may have been shown to somebody else, who has signed out in another window since.
        if (form.text("user") !== session.userId) {
          return yield* show(pending, session, {
            status: 409,
            problem: "You are signed in as somebody else now. Look at the request again.",
            // What the other one chose is nothing to this one.
            organization: "",
            ticked: new Set()
          })
        }
        const again = (status: number, problem: string) =>
          show(pending, session, { status, problem, organization, ticked })
        switch (form.text("decision")) {
          case "deny":
            return answered(yield* requests.deny(id))
          case "approve": {
            const scopes = operationsOf(pending)
              .filter((operation) => operation.risk !== "dangerous" || ticked.has(operation.id))
              .map((operation) => operation.id)
            if (organization === "") return yield* again(422, "Choose an organization.")
            if (scopes.length === 0)
              return yield* again(422, "Tick what the program may do, or deny the request.")
            const decision = {
              userId: session.userId,
              sessionId: session.id,
              orgId: organization,
              role: pending.role,
              scopes
            }
            return yield* requests.approve(id, decision).pipe(
              Effect.map(answered),
              Effect.catchTag("NotPermitted", ({ message }) => again(403, message))
            )
          }
          default:
            return yield* again(422, "Press Approve or Deny.")
        }
      },
      Effect.catchTag("RequestGone", () => Effect.succeed(over))
    )
  }
  return handlers
})
