/**
 * What happens before and after a handler, in the one fixed order that leaks nothing about existence:
 *
 *   401 credential, 404 organization, 403 kind of credential and role, 404 what the path names,
 *   413 size, 422 validation, 402 billing, 409 conflict
 *
 * The first four are decided here, before the body is read; the body is read and validated by the framework; billing
 * is the first thing a handler does (`guard`); conflicts are found by the handler. That is also why what a path
 * names is looked up here and handed on in `RequestScope`.
 */

import * as ByteSize from "effect/ByteSize"
import type * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as HttpIncomingMessage from "effect/http/HttpIncomingMessage"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServerError from "effect/http/HttpServerError"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import type * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiError from "effect/http-api/HttpApiError"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as SchemaIssue from "effect/SchemaIssue"
import type { Role } from "#schemas/kind.ts"
import { defaultEnvironment, EnvironmentSlug, looksLikeUid } from "#schemas/names.ts"
import { Access, credentialOf, sessionCookie } from "#src/access/Access.ts"
import { RateLimits, type Taken } from "#src/access/RateLimits.ts"
import { AppConfig } from "#src/config.ts"
import { Audit } from "#src/store/Audit.ts"
import type { StoreUnavailable } from "#src/store/errors.ts"
import { Resources } from "#src/store/Resources.ts"
import { Operation } from "./definition/operation.ts"
import type { Fault } from "./definition/problem.ts"
import { type Caller, Gate, RequestScope, type Scope } from "./definition/scope.ts"
import { fromStore, internalResponse, invalid, notFound, Problem, problem, toResponse } from "./problem.ts"
import { Replay } from "./replay.ts"
import { CurrentRequest } from "./request.ts"

const rank: Readonly<Record<Role, number>> = { member: 0, admin: 1, owner: 2 }

const unauthenticated = problem(401, "unauthenticated", "Send an API key or a session that is valid", {
  headers: { "www-authenticate": "Bearer" }
})
const noOrganization = problem(404, "not_found", "There is no such organization")

export const layer = Layer.effect(
  Gate,
  Effect.gen(function* () {
    const access = yield* Access
    const resources = yield* Resources
    const limits = yield* RateLimits
    const audit = yield* Audit
    const replay = yield* Replay
    const { rateLimit } = yield* AppConfig

    /** Who calls, and in which organization with which role. */
    const authenticate = Effect.fnUntraced(function* (
      operation: Operation,
      request: HttpServerRequest.HttpServerRequest,
      params: Readonly<Record<string, string | undefined>>
    ) {
      const info = yield* CurrentRequest
      const credential = credentialOf(request.headers["authorization"], request.cookies[sessionCookie])
      if (Option.isNone(credential)) return yield* unauthenticated
      const byCookie = request.headers["authorization"] === undefined
      if (byCookie && operation.risk !== "read" && !sameOrigin(request)) {
        return yield* problem(
          403,
          "cross_origin",
          "A change with a session cookie must come from our own pages"
        )
      }
      const addressed = operation.target === null ? null : (params["orgId"] ?? "")
      const found = yield* access.identify(credential.value, addressed)
      if (Option.isNone(found)) return yield* unauthenticated
      const identity = found.value
      const { kind } = credential.value
      yield* access.used(kind, identity)
      const caller: Caller = {
        credential: kind,
        credentialId: identity.credentialId,
        userId: identity.userId,
        actor: {
          principal: kind === "key" ? `key:${identity.credentialId}` : `user:${identity.userId}`,
          credential: kind,
          operation: operation.id,
          requestId: info.id,
          address: info.address,
          outcome: 200
        }
      }
      return { caller, organization: identity.organization }
    })

    const authorize = (operation: Operation, caller: Caller, role: Role) => {
      if (!operation.credentials.includes(caller.credential)) {
        return problem(
          403,
          "forbidden",
          `${operation.id} takes ${operation.credentials.join(" or ")} credentials only`
        )
      }
      if (operation.role !== null && rank[role] < rank[operation.role]) {
        return problem(
          403,
          "forbidden",
          `${operation.id} needs the role ${operation.role}; this credential has ${role}`
        )
      }
      return undefined
    }

    /** What the path names. A resource must be of the kind, in the project and in the organization that it names. */
    const locate = Effect.fnUntraced(function* (
      operation: Operation,
      orgId: string,
      request: HttpServerRequest.HttpServerRequest,
      params: Readonly<Record<string, string | undefined>>
    ) {
      const nothing = { place: undefined, environment: undefined, record: undefined }
      const { target } = operation
      if (target === null || target.type === "organization") return nothing
      if (target.type === "resource") {
        const uid = params[target.param] ?? ""
        const what = target.kind?.toLowerCase() ?? "resource"
        const found = looksLikeUid(uid) ? yield* resources.get(orgId, uid) : Option.none()
        if (Option.isNone(found)) return yield* notFound(what)
        const record = found.value
        const project = params["projectId"]
        if (target.kind !== undefined && record.kind !== target.kind) return yield* notFound(what)
        if (project !== undefined && record.projectId !== project && record.project !== project) {
          return yield* notFound(what)
        }
        return { ...nothing, record }
      }
      const wanted = environmentOf(request)
      const environment = wanted ?? (target.type === "environment" ? defaultEnvironment : undefined)
      const place = yield* resources.place(
        orgId,
        params["projectId"] ?? "",
        environment ?? defaultEnvironment
      )
      if (Option.isNone(place)) return yield* notFound("project")
      // A slug that cannot be one is left to validation, which names it.
      if (
        environment !== undefined &&
        place.value.environmentUid === null &&
        isEnvironmentSlug(environment)
      ) {
        return yield* notFound("environment in this project")
      }
      return { place: place.value, environment, record: undefined }
    })

    return (http, { endpoint }) =>
      Effect.gen(function* () {
        const operation = Context.get(endpoint.annotations, Operation)
        if (operation === undefined)
          return yield* Effect.die(new Error(`${endpoint.identifier} has no operation`))
        const request = yield* HttpServerRequest.HttpServerRequest
        const params = yield* HttpRouter.params
        const { caller, organization } = yield* authenticate(operation, request, params)
        const deny = (failure: Problem) => {
          audit.denied({
            ...caller.actor,
            outcome: failure.status,
            orgId: organization?.id ?? null,
            resource: params["uid"] ?? params["cacheId"] ?? null
          })
          return Effect.fail(failure)
        }
        const taken = yield* limits.take(`credential:${caller.credentialId}`, rateLimit)
        if (!taken.allowed) {
          return yield* problem(
            429,
            "rate_limited",
            `Too many requests; try again in ${taken.retryAfter} s`,
            {
              headers: { ...limitHeaders(taken), "retry-after": String(taken.retryAfter) }
            }
          )
        }
        if (operation.target !== null && organization === null) return yield* deny(noOrganization)
        const refused = authorize(operation, caller, organization?.role ?? "member")
        if (refused !== undefined) return yield* deny(refused)
        const orgId = organization?.id ?? ""
        const scope: Scope = {
          caller,
          orgId,
          orgSlug: organization?.slug ?? "",
          role: organization?.role ?? "member",
          billingActive: organization?.billingStatus === "active",
          ...(yield* locate(operation, orgId, request, params))
        }
        const handled = http.pipe(
          Effect.provideService(RequestScope, scope),
          Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(operation.longestBody)),
          Effect.catchCause(toFailureResponse),
          Effect.map((response) => HttpServerResponse.setHeaders(response, limitHeaders(taken)))
        )
        return yield* request.method === "POST" ? replay(scope, request, handled) : handled
      }).pipe(
        Effect.catchTag("Problem", toResponse),
        Effect.catchTag("StoreUnavailable", (error: StoreUnavailable) => toResponse(fromStore(error)))
      )
  })
)

const isEnvironmentSlug = Schema.is(EnvironmentSlug)

const environmentOf = (request: HttpServerRequest.HttpServerRequest): string | undefined => {
  const query = request.url.indexOf("?")
  if (query === -1) return undefined
  return new URLSearchParams(request.url.slice(query + 1)).get("environment") ?? undefined
}

const sameOrigin = (request: HttpServerRequest.HttpServerRequest): boolean => {
  const site = request.headers["sec-fetch-site"]
  if (site !== undefined) return site === "same-origin"
  const origin = request.headers["origin"]
  const host = request.headers["host"]
  return origin !== undefined && host !== undefined && URL.canParse(origin) && new URL(origin).host === host
}

/** RateLimit and RateLimit-Policy header fields (IETF draft "RateLimit header fields for HTTP"). */
const limitHeaders = (taken: Taken): Record<string, string> => ({
  ratelimit: `"credential";r=${taken.remaining};t=${taken.retryAfter}`,
  "ratelimit-policy": `"credential";q=${taken.limit};w=60`
})

const format = SchemaIssue.makeFormatterStandardSchemaV1()
const escapePart = (part: string) => part.replaceAll("~", "~0").replaceAll("/", "~1")
/** Where a part of the request sits, as the first words of its pointer. The body is the root itself. */
const roots: Readonly<Record<string, string>> = {
  Payload: "",
  Query: "/query",
  Params: "/path",
  Headers: "/headers"
}

export const faultsOf = (root: string, issue: SchemaIssue.Issue): ReadonlyArray<Fault> =>
  format(issue).issues.map((one) => ({
    pointer:
      root +
      (one.path ?? [])
        .map((part) => `/${escapePart(String(typeof part === "object" ? part.key : part))}`)
        .join(""),
    message: one.message
  }))

const tooLarge = problem(413, "payload_too_large", "The body is larger than this operation takes")
const malformed = problem(400, "malformed_body", "The body is not valid JSON")

/** Everything that can come out of reading a request, validating it and handling it. */
export const toFailureResponse = (
  cause: Cause.Cause<unknown>
): Effect.Effect<HttpServerResponse.HttpServerResponse> => {
  for (const reason of cause.reasons) {
    if (reason._tag === "Interrupt") return Effect.interrupt
    const error: unknown = reason._tag === "Fail" ? reason.error : reason.defect
    if (error instanceof Problem) return toResponse(error)
    if (
      HttpApiError.HttpApiSchemaError.is(error) &&
      error.kind !== "Body" &&
      error.kind !== "ResponseHeaders"
    ) {
      const { issue } = error.cause
      // The framework reports unparsable JSON as an issue of the whole body.
      if (
        error.kind === "Payload" &&
        format(issue).issues.some(({ message }) => message === "Expected a valid JSON body")
      ) {
        return toResponse(malformed)
      }
      return toResponse(invalid(faultsOf(roots[error.kind] ?? "", issue)))
    }
    if (HttpApiError.HttpApiPayloadTooLarge.is(error)) return toResponse(tooLarge)
    if (HttpServerError.isHttpServerError(error) && error.reason._tag === "RequestParseError") {
      return toResponse(error.reason.reason === "BodyTooLarge" ? tooLarge : malformed)
    }
  }
  return Effect.andThen(Effect.logError("a request failed unexpectedly", cause), internalResponse)
}

const unpaid = problem(
  402,
  "billing_inactive",
  "Billing of the organization is not active; an owner must activate it"
)

/** One handler for each endpoint of a group. It fails with problems only. */
type HandlersOf<Group extends { readonly endpoints: object }> = {
  readonly [K in keyof Group["endpoints"]]: (
    request: HttpApiEndpoint.Request<Group["endpoints"][K]>
  ) => Effect.Effect<unknown, Problem, unknown>
}

type Guarded<Handler> = Handler extends (request: infer I) => Effect.Effect<infer A, Problem, infer R>
  ? (request: I) => Effect.Effect<A | HttpServerResponse.HttpServerResponse, never, R | RequestScope>
  : never

/**
 * Wraps the handlers of a group: billing first, where the operation asks for it, and every problem a handler raises
 * becomes its response.
 */
export const guard =
  <Group extends { readonly endpoints: object }>(group: Group) =>
  <Handlers extends HandlersOf<Group>>(
    handlers: Handlers
  ): { readonly [K in keyof Handlers]: Guarded<Handlers[K]> } => {
    const endpoints = new Map(Object.entries(group.endpoints))
    const wrap = (name: string, handler: HandlersOf<Group>[keyof Group["endpoints"]]) => {
      const operation = Context.get(endpoints.get(name)?.annotations ?? Context.empty(), Operation)
      if (operation === undefined) throw new Error(`The operation ${name} has no metadata`)
      const billed = operation.billing
        ? Effect.flatMap(RequestScope, (scope) => (scope.billingActive ? Effect.void : Effect.fail(unpaid)))
        : Effect.void
      return (request: never) =>
        Effect.catchTag(Effect.andThen(billed, handler(request)), "Problem", toResponse)
    }
    return Object.fromEntries(
      Object.entries<HandlersOf<Group>[keyof Group["endpoints"]]>(handlers).map(([name, handler]) => [
        name,
        wrap(name, handler)
      ])
    ) as { readonly [K in keyof Handlers]: Guarded<Handlers[K]> }
  }
