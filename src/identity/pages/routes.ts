/** The pages' routes. Each does one step of a flow: it takes what was posted, asks `Identity`, and shows or redirects. */
import * as Effect from "effect/Effect"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as Layer from "effect/Layer"
import { pagePaths } from "#src/api/page-paths.ts"
import { AppConfig } from "#src/config.ts"
import { isSecure } from "../entry.ts"
import { accountPages } from "./account.ts"
import { failurePage, type PageHandler, type PageHandlers } from "./handling.ts"
import { oidcPages } from "./oidc.ts"
import { signInPages } from "./sign-in.ts"

export const layer = Layer.unwrap(
  Effect.gen(function* () {
    const { publicUrl } = yield* AppConfig
    const secure = isSecure(publicUrl)
    const handlers: PageHandlers = {
      ...(yield* signInPages(secure)),
      ...(yield* accountPages(secure)),
      ...(yield* oidcPages(secure))
    }
    return HttpRouter.addAll(
      pagePaths.map(([path, method]) =>
        HttpRouter.route(method, path, serve(handlers[`${method} ${path}` as keyof PageHandlers]))
      )
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
