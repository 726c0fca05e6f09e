/** Handlers of signing in and of one's own sessions. */
import * as Effect from "effect/Effect"
import * as HttpEffect from "effect/http/HttpEffect"
import type * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { looksLikeUid } from "#schemas/names.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { tooMany } from "#src/api/limits.ts"
import { fromStore, invalid, notFound, type Problem, problem } from "#src/api/problem.ts"
import { AppConfig } from "#src/config.ts"
import { theUser } from "#src/organizations/handlers/people.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { entryOf, isSecure, withoutSession, withSession } from "./entry.ts"
import type { BadInput, LinkDead, ProveAgain, TooManyTries, WrongCredentials } from "./errors.ts"
import { Identity, type SignedIn } from "./Identity.ts"
import { Oidc } from "./Oidc.ts"
import { Sessions } from "./Sessions.ts"

type Failure = WrongCredentials | LinkDead | TooManyTries | BadInput | ProveAgain | StoreUnavailable

const toProblem = (failure: Failure): Problem => {
  switch (failure._tag) {
    case "WrongCredentials":
      return problem(401, "wrong_credentials", failure.message)
    case "LinkDead":
      return problem(409, "link_dead", failure.message)
    case "TooManyTries":
      return tooMany("sign-in", { ...failure, remaining: 0 })
    case "BadInput":
      return invalid([{ pointer: `/${failure.field}`, message: failure.message }])
    case "ProveAgain":
      return problem(403, "reauthentication_required", failure.message)
    case "StoreUnavailable":
      return fromStore(failure)
  }
}

const before = (
  change: (response: HttpServerResponse.HttpServerResponse) => HttpServerResponse.HttpServerResponse
) =>
  HttpEffect.appendPreResponseHandler((_, response) =>
    Effect.succeed(response.status < 400 ? change(response) : response)
  )

export const layerSignIn = HttpApiBuilder.group(
  Api,
  "signIn",
  Effect.fnUntraced(function* (handlers) {
    const identity = yield* Identity
    const { providers } = yield* Oidc
    const { publicUrl } = yield* AppConfig
    const secure = isSecure(publicUrl)
    const welcome = Effect.fnUntraced(function* ({ session, userId, email, name, isNew }: SignedIn) {
      yield* before(withSession(session.token, secure))
      return { userId, email, name, isNew, expiresAt: session.expiresAt.toISOString() }
    })
    return handlers.handleAll({
      password: Effect.fnUntraced(function* ({ payload }) {
        const password = Redacted.make(payload.password)
        return yield* welcome(yield* identity.signIn(payload.email, password, yield* entryOf))
      }, asProblem),
      requestLink: Effect.fnUntraced(function* ({ payload }) {
        yield* identity.requestLink(payload, yield* entryOf)
        return { ok: true as const }
      }, asProblem),
      useLink: Effect.fnUntraced(function* ({ payload }) {
        return yield* welcome(yield* identity.useLink(payload.token, yield* entryOf))
      }, asProblem),
      requestReset: Effect.fnUntraced(function* ({ payload }) {
        yield* identity.requestReset(payload, yield* entryOf)
        return { ok: true as const }
      }, asProblem),
      resetPassword: Effect.fnUntraced(function* ({ payload }) {
        const password = Redacted.make(payload.password)
        return yield* welcome(yield* identity.resetPassword(payload.token, password, yield* entryOf))
      }, asProblem),
      providers: () =>
        Effect.succeed(
          providers.map(({ id, name }) => ({ id, name, url: `${publicUrl}/v1/auth/oidc/${id}` }))
        )
    })
  })
)

/** The framework lets problems pass as defects, and `public-handler.ts` gives them their form. */
const asProblem = <A, R>(self: Effect.Effect<A, Failure, R>): Effect.Effect<A, never, R> =>
  Effect.orDie(Effect.mapError(self, toProblem))

export const layerSessions = HttpApiBuilder.group(
  Api,
  "sessions",
  Effect.fnUntraced(function* (handlers) {
    const identity = yield* Identity
    const sessions = yield* Sessions
    const { publicUrl } = yield* AppConfig
    const secure = isSecure(publicUrl)
    /** The session at hand. It may have ended while the request was on its way. */
    const current = Effect.gen(function* () {
      const { caller } = yield* RequestScope
      const found = yield* Effect.mapError(sessions.byId(caller.credentialId), fromStore)
      return Option.isSome(found) ? found.value : yield* notFound("session")
    })
    return handlers.handleAll(
      handlersOf(Api.groups.sessions)({
        list: Effect.fnUntraced(function* () {
          const { caller } = yield* RequestScope
          const listed = yield* Effect.mapError(sessions.list(yield* theUser), fromStore)
          return listed.map((one) => ({
            ...one,
            current: one.id === caller.credentialId,
            createdAt: one.createdAt.toISOString(),
            lastUsedAt: one.lastUsedAt.toISOString(),
            expiresAt: one.expiresAt.toISOString()
          }))
        }),
        end: Effect.fnUntraced(function* ({ params }) {
          const user = yield* theUser
          const known =
            looksLikeUid(params.sessionId) &&
            (yield* Effect.mapError(
              sessions.end(user, params.sessionId, (yield* entryOf).visitor),
              fromStore
            ))
          return known ? { ok: true as const } : yield* notFound("session of yours")
        }),
        signOut: Effect.fnUntraced(function* () {
          const { caller } = yield* RequestScope
          yield* Effect.mapError(
            sessions.end(yield* theUser, caller.credentialId, (yield* entryOf).visitor),
            fromStore
          )
          yield* before(withoutSession(secure))
          return { ok: true as const }
        }),
        signOutEverywhere: Effect.fnUntraced(function* () {
          const ended = yield* Effect.mapError(
            sessions.endAll(yield* theUser, (yield* entryOf).visitor),
            fromStore
          )
          yield* before(withoutSession(secure))
          return { ended }
        }),
        proveAgain: Effect.fnUntraced(function* ({ payload }) {
          const password = Redacted.make(payload.password)
          const proving = identity.proveAgain(yield* current, password, yield* entryOf)
          yield* Effect.mapError(proving, toProblem)
          return { ok: true as const }
        }),
        changePassword: Effect.fnUntraced(function* ({ payload }) {
          const given = payload.current === undefined ? undefined : Redacted.make(payload.current)
          const chosen = Redacted.make(payload.password)
          const changing = identity.changePassword(yield* current, given, chosen, yield* entryOf)
          yield* Effect.mapError(changing, toProblem)
          return { ok: true as const }
        })
      })
    )
  })
)
