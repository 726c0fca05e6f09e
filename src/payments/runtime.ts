/**
 * `/v1/runtime/payments/...`: the operations on payments as an app calls them, with the token of its environment. The token
 * says which environment, so paths name none; everything else is as below `/v1/orgs/...`, by the same handlers.
 */
import * as Effect from "effect/Effect"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { digestOf } from "#src/access/Access.ts"
import { Identified } from "#src/access/Identified.ts"
import { fromStore, invalid, problem, toResponse } from "#src/api/problem.ts"
import { AppServiceTokens } from "#src/projects/AppServiceTokens.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

const base = "/v1/runtime/payments"

const unauthenticated = problem(
  401,
  "unauthenticated",
  "Send the token of the app's environment as a bearer token",
  { headers: { "www-authenticate": "Bearer" } }
)
const noEnvironment = invalid([
  { pointer: "/query/environment", message: "is not given here: the token is of one environment" }
])

export const layer = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const tokens = yield* AppServiceTokens
    const handle = Effect.gen(function* () {
      const request = yield* HttpServerRequest.HttpServerRequest
      const bearer = /^Bearer +(\S+) *$/i.exec(request.headers["authorization"] ?? "")?.[1]
      if (bearer === undefined) return yield* unauthenticated
      const found = yield* tokens.holder(Redacted.make(bearer))
      if (Option.isNone(found)) return yield* unauthenticated
      const { tokenId, orgId, orgSlug, billingStatus, projectId, environment } = found.value
      const question = request.url.indexOf("?")
      const path = question === -1 ? request.url : request.url.slice(0, question)
      const query = new URLSearchParams(question === -1 ? "" : request.url.slice(question + 1))
      if (query.has("environment")) return yield* noEnvironment
      query.set("environment", environment)
      const url = `/v1/orgs/${orgId}/projects/${projectId}/payments${path.slice(base.length)}?${query}`
      return yield* Effect.scoped(router.asHttpEffect()).pipe(
        Effect.provideService(HttpServerRequest.HttpServerRequest, request.modify({ url })),
        Effect.provideService(Identified, {
          credential: { kind: "app", digest: digestOf(bearer) },
          identity: {
            credentialId: tokenId,
            userId: null,
            // Nobody keeps when a token of an app was used.
            lastUsedAt: new Date(),
            provedAt: null,
            grant: undefined,
            organization: { id: orgId, slug: orgSlug, role: "admin", billingStatus }
          }
        }),
        Effect.orDie
      )
    }).pipe(
      Effect.catchTag("Problem", toResponse),
      Effect.catchTag("StoreUnavailable", (error: StoreUnavailable) => toResponse(fromStore(error)))
    )
    // Of the base itself too.
    yield* router.add("*", `${base}/*`, handle)
  })
)
