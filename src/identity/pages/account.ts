/** One's own account: sessions, password, invitations. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { looksLikeUid } from "#schemas/names.ts"
import { Access, digestOf } from "#src/access/Access.ts"
import { CurrentRequest } from "#src/access/CurrentRequest.ts"
import { declined } from "#src/organizations/handlers/invitations.ts"
import { Invitations } from "#src/organizations/Invitations.ts"
import { entryOf, safeNext, withoutSession } from "../entry.ts"
import { LinkDead } from "../errors.ts"
import { Identity, recentSeconds } from "../Identity.ts"
import { People } from "../People.ts"
import { Sessions } from "../Sessions.ts"
import { goTo, type PageHandlers, signInPath, somebody, whoever } from "./handling.ts"
import { posted } from "./posted.ts"
import * as views from "./views.ts"

/** What the account page can say was done. A request chooses among these and brings no text of its own. */
const done: ReadonlyMap<string, string> = new Map([
  ["password", "The password is saved."],
  ["ended", "The session is signed out."],
  ["joined", "You are a member of the organization now."]
])

const noInvitation = new LinkDead({
  message: "This invitation was used, was taken back, or has expired. Ask for another one."
})

type Route = Extract<keyof PageHandlers, `${string} /account${string}` | `${string} /invitation`>

export const accountPages = Effect.fnUntraced(function* (secure: boolean) {
  const identity = yield* Identity
  const sessions = yield* Sessions
  const people = yield* People
  const access = yield* Access
  const invitations = yield* Invitations
  const asked = yield* whoever
  const signedIn = yield* somebody

  const invitationPath = (token: string) => `/invitation?token=${encodeURIComponent(token)}`

  const handlers: Pick<PageHandlers, Route> = {
    "GET /account": Effect.fnUntraced(function* (query) {
      const session = yield* signedIn("/account")
      const [organizations, listed] = yield* Effect.all([
        access.organizations("session", session.id, session.userId),
        sessions.list(session.userId)
      ])
      return views.account(session, organizations, listed, done.get(query.get("done") ?? ""))
    }),
    "GET /account/password": Effect.fnUntraced(function* (query) {
      const session = yield* signedIn("/account/password")
      if (!session.hasPassword && session.provedSecondsAgo > recentSeconds) {
        return goTo(`/account/prove?next=${encodeURIComponent("/account/password")}`)
      }
      return views.choosePassword(session, safeNext(query.get("next")))
    }),
    "POST /account/password": Effect.fnUntraced(function* () {
      const form = yield* posted
      const session = yield* signedIn("/account/password")
      const next = safeNext(form.text("next"), "/account")
      const tried = (status: number, problem: string) =>
        Effect.succeed(views.choosePassword(session, next, { status, problem }))
      const current = session.hasPassword ? form.secret("current") : undefined
      return yield* identity.changePassword(session, current, form.secret("password"), yield* entryOf).pipe(
        Effect.as(goTo(next === "/account" ? "/account?done=password" : next)),
        Effect.catchTags({
          BadInput: ({ message }) => tried(422, `The password ${message}.`),
          WrongCredentials: () => tried(401, "The current password is wrong.")
        })
      )
    }),
    "GET /account/prove": Effect.fnUntraced(function* (query) {
      const next = safeNext(query.get("next"))
      return views.proveAgain(yield* signedIn(next), next)
    }),
    "POST /account/prove": Effect.fnUntraced(function* () {
      const form = yield* posted
      const next = safeNext(form.text("next"))
      const session = yield* signedIn(next)
      return yield* identity.proveAgain(session, form.secret("password"), yield* entryOf).pipe(
        Effect.as(goTo(next)),
        Effect.catchTag("WrongCredentials", () =>
          Effect.succeed(views.proveAgain(session, next, { status: 401, problem: "The password is wrong." }))
        )
      )
    }),
    "POST /account/sessions/end": Effect.fnUntraced(function* () {
      const form = yield* posted
      const session = yield* signedIn("/account")
      const id = form.text("id")
      if (looksLikeUid(id)) yield* sessions.end(session.userId, id, (yield* entryOf).visitor)
      return goTo("/account?done=ended")
    }),
    "POST /account/sign-out": Effect.fnUntraced(function* () {
      const next = safeNext((yield* posted).text("next"), "")
      const session = Option.getOrUndefined(yield* asked)
      if (session !== undefined) yield* sessions.end(session.userId, session.id, (yield* entryOf).visitor)
      return withoutSession(secure)(goTo(next === "" ? "/sign-in" : signInPath(next)))
    }),
    "POST /account/sign-out-everywhere": Effect.fnUntraced(function* () {
      yield* posted
      const session = Option.getOrUndefined(yield* asked)
      if (session !== undefined) yield* sessions.endAll(session.userId, (yield* entryOf).visitor)
      return withoutSession(secure)(goTo("/sign-in"))
    }),
    "GET /invitation": Effect.fnUntraced(function* (query) {
      const token = query.get("token") ?? ""
      const found = Option.getOrUndefined(yield* people.findInvitation(digestOf(token)))
      if (found === undefined) return yield* noInvitation
      const session = Option.getOrUndefined(yield* asked)
      return views.invitation(token, found, session?.email)
    }),
    "POST /invitation": Effect.fnUntraced(function* () {
      const form = yield* posted
      const token = form.text("token")
      const session = yield* signedIn(invitationPath(token))
      const { id, address } = yield* CurrentRequest
      const joined = yield* invitations.accept(
        token,
        session.userId,
        {
          principal: `user:${session.userId}`,
          credential: "session",
          operation: "invitations.accept",
          requestId: id,
          address,
          outcome: 200
        },
        false
      )
      if (typeof joined !== "string") return goTo("/account?done=joined")
      const found = Option.getOrUndefined(yield* people.findInvitation(digestOf(token)))
      if (found === undefined) return yield* noInvitation
      const { status, detail } = declined[joined]
      return views.invitation(token, found, session.email, { status, problem: `${detail}.` })
    })
  }
  return handlers
})
