/** What the handlers of pages share: their shape and routes, who is signed in, and the page of a failure. */
import * as Effect from "effect/Effect"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { identityPaths, PageRoute } from "#src/api/page-paths.ts"
import { AppConfig } from "#src/config.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { Address } from "../api.ts"
import { cookieDigest } from "../entry.ts"
import type { LinkDead, ProveAgain, ProviderFailed, TooManyTries } from "../errors.ts"
import { type Session, Sessions } from "../Sessions.ts"
import { belowPath, pathPrefix } from "./path-prefix.ts"
import type { FormRefused } from "./posted.ts"
import * as views from "./views.ts"

/** Signed in they would not be here. */
export class SignInFirst extends Schema.TaggedError<SignInFirst>()("SignInFirst", { next: Schema.String }) {}

export type PageFailure =
  | FormRefused
  | LinkDead
  | ProveAgain
  | ProviderFailed
  | SignInFirst
  | StoreUnavailable
  | TooManyTries

export type PageHandler = (
  query: URLSearchParams,
  request: HttpServerRequest.HttpServerRequest
) => Effect.Effect<
  HttpServerResponse.HttpServerResponse,
  PageFailure,
  HttpServerRequest.HttpServerRequest | HttpRouter.RouteContext
>

type Paths = ReadonlyArray<readonly [path: `/${string}`, method: "GET" | "POST"]>

/** A handler for each route of a list in `page-paths.ts`. */
export type HandlersOf<Of extends Paths> = Readonly<Record<PageRoute<Of>, PageHandler>>
export type PageHandlers = HandlersOf<typeof identityPaths>

export const pageRoutes = <const Of extends Paths>(paths: Of, handlers: HandlersOf<Of>) =>
  Layer.unwrap(
    Effect.map(AppConfig, ({ publicUrl }) => {
      const below = belowPath(pathPrefix(publicUrl))
      return HttpRouter.addAll(
        paths.map(([path, method]) => {
          const handler = handlers[`${method} ${path}` as PageRoute<Of>]
          return HttpRouter.route(method, path, Effect.map(serve(handler), below))
        })
      )
    })
  )

const serve = (handler: PageHandler) =>
  Effect.gen(function* () {
    const request = yield* HttpServerRequest.HttpServerRequest
    const question = request.url.indexOf("?")
    const query = new URLSearchParams(question === -1 ? "" : request.url.slice(question + 1))
    return yield* Effect.catch(handler(query, request), (failure) => Effect.succeed(failurePage(failure)))
  })

/** After a form: reloading what comes next sends nothing again. */
export const goTo = (path: string) =>
  HttpServerResponse.redirect(path, {
    status: 303,
    headers: { "cache-control": "no-store", "referrer-policy": "same-origin" }
  })

/** The page to sign in on, and where to go from there. */
export const signInPath = (next: string) => `/sign-in?next=${encodeURIComponent(next)}`

export const isAddress = Schema.is(Address)
export const noAddress = "Enter an e-mail address, such as name@example.com."

/** Who is signed in in this browser. */
export const whoever = Effect.gen(function* () {
  const sessions = yield* Sessions
  return Effect.gen(function* () {
    const digest = cookieDigest(yield* HttpServerRequest.HttpServerRequest)
    return digest === null ? Option.none<Session>() : yield* sessions.find(digest)
  })
})

/** The same, for pages that are of no use to a stranger. `here` is where to come back to. */
export const somebody = Effect.map(
  whoever,
  (asked) => (here: string) =>
    Effect.flatMap(
      asked,
      Option.match({
        onNone: () => Effect.fail(new SignInFirst({ next: here })),
        onSome: (session) => Effect.succeed(session)
      })
    )
)

export const failurePage = (failure: PageFailure): HttpServerResponse.HttpServerResponse => {
  switch (failure._tag) {
    case "SignInFirst":
      return goTo(signInPath(failure.next))
    case "FormRefused":
      return views.notice("That did not work", failure.message, failure.status)
    case "LinkDead":
      return views.notice("This link does not work", failure.message, 410)
    case "ProveAgain":
      return goTo(`/account/prove?next=${encodeURIComponent("/account/password")}`)
    case "ProviderFailed":
      return views.notice("Signing in did not work", failure.message, 400)
    case "TooManyTries":
      return views.notice("Too many tries", `${failure.message}.`, 429, {
        "retry-after": String(failure.retryAfter)
      })
    case "StoreUnavailable":
      return views.notice("One moment", "The service cannot answer now. Try again shortly.", 503, {
        "retry-after": "2"
      })
  }
}
