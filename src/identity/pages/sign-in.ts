/** Signing in and up, and choosing a new password: what strangers see. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { AppConfig } from "#src/config.ts"
import { entryOf, safeNext, withSession } from "../entry.ts"
import { Identity, type SignedIn } from "../Identity.ts"
import { Oidc } from "../Oidc.ts"
import { goTo, isAddress, noAddress, type PageHandlers, whoever } from "./handling.ts"
import { posted } from "./posted.ts"
import * as views from "./views.ts"

const longestName = 100

type Route = Extract<
  keyof PageHandlers,
  `${string} /sign-${string}` | `${string} /reset-${string}` | "GET /check-mail"
>

export const signInPages = Effect.fnUntraced(function* (secure: boolean) {
  const identity = yield* Identity
  const { providers } = yield* Oidc
  const { signUp } = yield* AppConfig
  const invitedOnly = signUp === "invited"
  const asked = yield* whoever

  const welcome = ({ session }: SignedIn, next: string) => withSession(session.token, secure)(goTo(next))

  const handlers: Pick<PageHandlers, Route> = {
    "GET /sign-in": Effect.fnUntraced(function* (query) {
      const next = safeNext(query.get("next"))
      const session = yield* asked
      return Option.isSome(session) ? goTo(next) : views.signIn(providers, next)
    }),
    "POST /sign-in": Effect.fnUntraced(function* () {
      const form = yield* posted
      const next = safeNext(form.text("next"))
      const email = form.text("email").trim()
      const tried = (status: number, problem: string) =>
        views.signIn(providers, next, { status, problem, email })
      if (!isAddress(email)) return tried(422, noAddress)
      return yield* identity.signIn(email, form.secret("password"), yield* entryOf).pipe(
        Effect.map((signedIn) => welcome(signedIn, next)),
        Effect.catchTag("WrongCredentials", ({ message }) => Effect.succeed(tried(401, `${message}.`)))
      )
    }),
    "GET /sign-in/by-mail": (query) => Effect.succeed(views.byMail(safeNext(query.get("next")))),
    "POST /sign-in/by-mail": Effect.fnUntraced(function* () {
      const form = yield* posted
      const next = safeNext(form.text("next"))
      const email = form.text("email").trim()
      if (!isAddress(email)) return views.byMail(next, { status: 422, problem: noAddress, email })
      yield* identity.requestLink({ email, next }, yield* entryOf)
      return goTo("/check-mail")
    }),
    "GET /sign-in/link": Effect.fnUntraced(function* (query) {
      const token = query.get("token") ?? ""
      const { email } = yield* identity.lookAtLink("sign_in", token)
      return views.confirmLink(token, email)
    }),
    "POST /sign-in/link": Effect.fnUntraced(function* () {
      const form = yield* posted
      const signedIn = yield* identity.useLink(form.text("token"), yield* entryOf)
      const next = safeNext(signedIn.next)
      return welcome(signedIn, signedIn.isNew ? `/account/password?next=${encodeURIComponent(next)}` : next)
    }),
    "GET /sign-up": (query) => Effect.succeed(views.signUp(invitedOnly, safeNext(query.get("next")))),
    "POST /sign-up": Effect.fnUntraced(function* () {
      const form = yield* posted
      const next = safeNext(form.text("next"))
      const email = form.text("email").trim()
      const name = form.text("name").replaceAll(/\s+/g, " ").trim().slice(0, longestName)
      if (!isAddress(email))
        return views.signUp(invitedOnly, next, { status: 422, problem: noAddress, email, name })
      yield* identity.requestLink({ email, name, next }, yield* entryOf)
      return goTo("/check-mail")
    }),
    "GET /check-mail": () => Effect.succeed(views.checkMail()),
    "GET /reset-password": (query) => Effect.succeed(views.requestReset(safeNext(query.get("next")))),
    "POST /reset-password": Effect.fnUntraced(function* () {
      const form = yield* posted
      const next = safeNext(form.text("next"))
      const email = form.text("email").trim()
      if (!isAddress(email)) return views.requestReset(next, { status: 422, problem: noAddress, email })
      yield* identity.requestReset({ email, next }, yield* entryOf)
      return goTo("/check-mail")
    }),
    "GET /reset-password/new": Effect.fnUntraced(function* (query) {
      const token = query.get("token") ?? ""
      yield* identity.lookAtLink("password_reset", token)
      return views.resetPassword(token)
    }),
    "POST /reset-password/new": Effect.fnUntraced(function* () {
      const form = yield* posted
      const token = form.text("token")
      return yield* identity.resetPassword(token, form.secret("password"), yield* entryOf).pipe(
        Effect.map((signedIn) => welcome(signedIn, safeNext(signedIn.next))),
        Effect.catchTag("BadInput", ({ message }) =>
          Effect.succeed(views.resetPassword(token, `The password ${message}.`))
        )
      )
    })
  }
  return handlers
})
