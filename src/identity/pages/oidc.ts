/** Leaving for an identity provider and coming back. */
import * as Effect from "effect/Effect"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import { entryOf, safeNext, withSession } from "../entry.ts"
import { Identity } from "../Identity.ts"
import { flowCookie, flowMinutes, Oidc } from "../Oidc.ts"
import { goTo, type PageHandlers } from "./handling.ts"

type Route = Extract<keyof PageHandlers, `GET /v1/auth/oidc/${string}`>

export const oidcPages = Effect.fnUntraced(function* (secure: boolean) {
  const oidc = yield* Oidc
  const identity = yield* Identity
  // Lax and not Strict: the provider sends the browser back from its own site.
  const cookie = { path: "/v1/auth/oidc/", httpOnly: true, sameSite: "lax", secure } as const
  const provider = Effect.map(HttpRouter.params, (params) => params["provider"] ?? "")

  const handlers: Pick<PageHandlers, Route> = {
    "GET /v1/auth/oidc/:provider": Effect.fnUntraced(function* (query) {
      const left = yield* oidc.leave(yield* provider, safeNext(query.get("next")))
      return HttpServerResponse.setCookieUnsafe(goTo(left.url), flowCookie, left.cookie, {
        ...cookie,
        maxAge: flowMinutes * 60_000
      })
    }),
    "GET /v1/auth/oidc/:provider/callback": Effect.fnUntraced(function* (query, request) {
      const back = yield* oidc.comeBack(yield* provider, query.toString(), request.cookies[flowCookie])
      const { session } = yield* identity.signInFrom(back.claims, yield* entryOf)
      const response = goTo(back.next)
      return withSession(
        session.token,
        secure
      )(HttpServerResponse.setCookieUnsafe(response, flowCookie, "", { ...cookie, maxAge: 0 }))
    })
  }
  return handlers
})
