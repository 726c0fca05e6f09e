/**
 * What happens before and after a handler, in the one fixed order that leaks nothing about existence:
 *
 *   401 credential, 404 organization, 403 kind of credential and role, 404 what the path names,
 *   413 size, 422 validation, 402 billing, 409 conflict
 *
 * The first four are decided here, before the body is read; the body is read and validated by the framework and by
 * `handlersOf`, which then looks at billing; conflicts are found by the handler. That is also why what a path names is
 * looked up here and handed on in `RequestScope`. References to something that is not there (422) are found by the write,
 * and looked up before it where the request is refused for something that comes later (`resource-handlers.ts`).
 */

import * as ByteSize from "effect/ByteSize"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as HttpIncomingMessage from "effect/http/HttpIncomingMessage"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { Role } from "#schemas/kind.ts"
import { kindInWords } from "#schemas/kind.ts"
import { defaultEnvironment, EnvironmentSlug, looksLikeUid } from "#schemas/names.ts"
import { Access, type Credential, credentialOf, type Grant, sessionCookie } from "#src/access/Access.ts"
import { AccessRecords } from "#src/access/AccessRecords.ts"
import { AuditWriter } from "#src/access/AuditWriter.ts"
import { type Audience, CurrentAudience } from "#src/access/CurrentAudience.ts"
import { CurrentRequest, type RequestInfo } from "#src/access/CurrentRequest.ts"
import { Identified } from "#src/access/Identified.ts"
import { RateLimits } from "#src/access/RateLimits.ts"
import { sameOrigin } from "#src/access/same-origin.ts"
import { AppConfig } from "#src/config.ts"
import { newReservation, type Reservation } from "#src/store/Reservation.ts"
import { Resources } from "#src/store/Resources.ts"
import type { AccessTable } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { checkBody } from "./body.ts"
import { Operation } from "./definition/operation.ts"
import { Authorize, type Caller, type Found, RequestScope, type Scope } from "./definition/scope.ts"
import { toFailureResponse } from "./failure.ts"
import { limitHeaders, tooMany } from "./limits.ts"
import { fromStore, notFound, type Problem, problem, toResponse, unreadable } from "./problem.ts"
import { Replay } from "./replay.ts"
import { isReadable } from "./views.ts"

const organizationAlone: Found = { type: "organization" }

type Params = Readonly<Record<string, string | undefined>>

const strangersAuditedPerSecond = 5

const rank: Readonly<Record<Role, number>> = { member: 0, admin: 1, owner: 2 }

const unauthenticated = problem(401, "unauthenticated", "Send an API key or a session that is valid", {
  headers: { "www-authenticate": "Bearer" }
})
const noOrganization = problem(404, "not_found", "There is no such organization")
/** Milliseconds. */
const proofLasts = 12 * 3_600_000
const proveAgain = problem(
  403,
  "reauthentication_required",
  "You proved who you are more than 12 hours ago; sign in again, or give your password at /v1/auth/prove-again"
)
const crossOrigin = problem(
  403,
  "cross_origin",
  "A change with a session cookie must come from our own pages"
)

export const layer = Layer.effect(
  Authorize,
  Effect.gen(function* () {
    const access = yield* Access
    const resources = yield* Resources
    const records = yield* AccessRecords
    const limits = yield* RateLimits
    const audit = yield* AuditWriter
    const replay = yield* Replay
    const { rateLimit } = yield* AppConfig

    /** Whose credential this is; undefined when it does not hold. */
    const authenticate = Effect.fnUntraced(function* (
      operation: Operation,
      request: HttpServerRequest.HttpServerRequest,
      addressed: string | null,
      audience: Audience,
      info: RequestInfo
    ) {
      const known = yield* Identified
      const presented =
        known === undefined
          ? credentialOf(request.headers["authorization"], request.cookies[sessionCookie])
          : Option.some(known.credential)
      if (Option.isNone(presented)) return undefined
      const credential = presented.value
      const isAnswered =
        known !== undefined && (addressed === null || addressed === known.identity.organization?.id)
      const found = isAnswered
        ? Option.some(known.identity)
        : yield* access.identify(credential, addressed, audience)
      if (Option.isNone(found)) return undefined
      const identity = found.value
      yield* access.used(credential.kind, identity)
      const caller: Caller = {
        credential: credential.kind,
        credentialId: identity.credentialId,
        userId: identity.userId,
        grant: identity.grant,
        actor: {
          principal:
            credential.kind === "session"
              ? `user:${identity.userId}`
              : `${credential.kind}:${identity.credentialId}`,
          credential: credential.kind,
          operation: operation.id,
          requestId: info.id,
          address: info.address,
          outcome: 200
        }
      }
      return { credential, caller, organization: identity.organization, provedAt: identity.provedAt }
    })

    /** What the path names. A resource must be of the kind, in the project and in the organization that it names. */
    const locate = Effect.fnUntraced(function* (
      operation: Operation,
      orgId: string,
      request: HttpServerRequest.HttpServerRequest,
      params: Params
    ): Effect.fn.Return<Found, Problem | StoreUnavailable> {
      const { target } = operation
      if (target === null || target.type === "organization") return organizationAlone
      if (target.type === "record") {
        const id = params[target.param] ?? ""
        const found = looksLikeUid(id) && (yield* records.exists(orgId, target.table, id))
        return found ? organizationAlone : yield* notFound(recordNames[target.table])
      }
      if (target.type === "resource") {
        const uid = params[target.param] ?? ""
        const what = target.kind === undefined ? "resource" : kindInWords(target.kind)
        const found = looksLikeUid(uid) ? yield* resources.get(orgId, uid) : Option.none()
        if (Option.isNone(found)) return yield* notFound(what)
        const record = found.value
        const project = params["projectId"]
        if (target.kind !== undefined && record.kind !== target.kind) return yield* notFound(what)
        if (project !== undefined && record.projectId !== project && record.project !== project) {
          return yield* notFound(what)
        }
        return { type: "resource", record }
      }
      const wanted = environmentOf(request)
      const environment = wanted ?? (target.type === "environment" ? defaultEnvironment : undefined)
      // A slug that cannot be one is left to validation, which names it.
      const possible = environment === undefined || isEnvironmentSlug(environment)
      const sought = possible ? (environment ?? defaultEnvironment) : defaultEnvironment
      const place = yield* resources.place(orgId, params["projectId"] ?? "", sought)
      if (Option.isNone(place)) return yield* notFound("project")
      const { environmentUid, ...named } = place.value
      if (environment === undefined || !possible) return { type: "project", ...named, environment }
      if (environmentUid === null) return yield* notFound("environment in this project")
      return target.type === "project"
        ? { type: "project", ...named, environment }
        : { type: "environment", ...named, environment, environmentUid }
    })

    // Refusals of callers whom nobody knows are audited a few each second, so that a flood of them fills no table.
    let second = 0
    let written = 0
    const strangerIsAudited = (now: number) => {
      const current = Math.floor(now / 1000)
      if (current !== second) [second, written] = [current, 0]
      return ++written <= strangersAuditedPerSecond
    }

    return (http, { endpoint }) => {
      const operation = Context.get(endpoint.annotations, Operation)
      if (operation === undefined) return Effect.die(new Error(`${endpoint.identifier} has no operation`))
      const longestBody = ByteSize.bytes(operation.longestBody)
      return Effect.gen(function* () {
        const request = yield* HttpServerRequest.HttpServerRequest
        const params = yield* HttpRouter.params
        const addressed = operation.target === null ? null : (params["orgId"] ?? "")
        const info = yield* CurrentRequest
        const resource = named(params)
        const audience = yield* CurrentAudience
        const known = yield* authenticate(operation, request, addressed, audience, info)
        if (known === undefined) {
          if (strangerIsAudited(yield* Clock.currentTimeMillis)) {
            audit.denied({ ...stranger(operation, info), outcome: 401, orgId: null, resource })
          }
          return yield* unauthenticated
        }
        const { caller, credential, organization, provedAt } = known
        const deny = (outcome: number) =>
          audit.denied({ ...caller.actor, outcome, orgId: organization?.id ?? null, resource })
        const taken = yield* limits.take(`credential:${caller.credentialId}`, rateLimit)
        if (!taken.allowed) return yield* tooMany("credential", taken)
        const refused =
          addressed !== null && organization === null
            ? noOrganization
            : (authorize(operation, caller, organization?.role ?? "member", request) ??
              freshness(operation, provedAt, yield* Clock.currentTimeMillis))
        if (refused !== undefined) {
          deny(refused.status)
          return yield* refused
        }
        const orgId = organization?.id ?? ""
        const found = yield* locate(operation, orgId, request, params)
        const scope: Omit<Scope, "reservation"> = {
          operation,
          caller,
          orgId,
          orgSlug: organization?.slug ?? "",
          role: organization?.role ?? "member",
          billingActive: organization?.billingStatus === "active",
          ifMatch: request.headers["if-match"],
          stillHolds: stillHolds(access, credential, addressed, audience, operation),
          found
        }
        const handled = (reservation: Reservation) =>
          http.pipe(
            Effect.provideService(RequestScope, { ...scope, reservation }),
            Effect.catchCause(toFailureResponse),
            Effect.flatMap((response) =>
              response.status < 500 || found.type !== "resource" || isReadable(found.record)
                ? Effect.succeed(response)
                : toResponse(unreadable)
            )
          )
        const response = yield* (operation.streamed ? Effect.void : checkBody(request)).pipe(
          Effect.andThen(
            request.method === "POST" ? replay(scope, request, handled) : handled(newReservation(false))
          ),
          Effect.provideService(HttpIncomingMessage.MaxBodySize, longestBody)
        )
        if (response.status === 403) deny(403)
        return HttpServerResponse.setHeaders(response, {
          // Answers hold secrets, and what is true for this credential is true for no other.
          "cache-control": "no-store",
          // What a handler limits further is told by the handler.
          ...(response.status === 429 ? {} : limitHeaders("credential", taken))
        })
      }).pipe(
        Effect.catchTag("Problem", toResponse),
        Effect.catchTag("StoreUnavailable", (error: StoreUnavailable) => toResponse(fromStore(error)))
      )
    }
  })
)

const recordNames: Readonly<Record<AccessTable, string>> = {
  member: "member",
  invitation: "invitation",
  api_key: "API key",
  agent_grant: "grant",
  webhook: "webhook",
  git_connection: "connection"
}

/** The id of what the path is about, for the audit log. */
const named = (params: Params): string | null =>
  Object.entries(params).find(
    ([name]) => name === "uid" || (name.endsWith("Id") && name !== "orgId" && name !== "projectId")
  )?.[1] ?? null

const stranger = (operation: Operation, info: RequestInfo) => ({
  principal: "anonymous",
  credential: "none",
  operation: operation.id,
  requestId: info.id,
  address: info.address
})

const authorize = (
  operation: Operation,
  caller: Caller,
  role: Role,
  request: HttpServerRequest.HttpServerRequest
): Problem | undefined => {
  const byCookie = caller.credential === "session" && request.headers["authorization"] === undefined
  if (byCookie && operation.risk !== "read" && !sameOrigin(request)) return crossOrigin
  const taken =
    caller.credential === "app"
      ? operation.apps
      : caller.credential === "maintenance"
        ? // What a key may do, and of that only what can be taken back.
          operation.credentials.includes("key") && (operation.risk === "read" || operation.risk === "write")
        : operation.credentials.includes(caller.credential)
  if (!taken) {
    return problem(
      403,
      "forbidden",
      `${operation.id} takes ${operation.credentials.join(" or ")} credentials only`
    )
  }
  if (caller.grant !== undefined && !caller.grant.scopes.includes(operation.id)) {
    return outsideScope(operation, caller.grant)
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

/** RFC 6750, section 3.1. What it has already is named too: a client asks for what the challenge says, and no more. */
const outsideScope = (operation: Operation, { scopes }: Grant): Problem =>
  problem(
    403,
    "forbidden",
    `${operation.id} is outside of what this agent was granted; sign in again with that scope`,
    {
      headers: {
        "www-authenticate": `Bearer error="insufficient_scope", scope="${[...scopes, operation.id].join(" ")}"`
      }
    }
  )

/** What only owners do and cannot take back wants somebody who was there lately, not a browser left open. */
const freshness = (operation: Operation, provedAt: Date | null, now: number): Problem | undefined =>
  operation.sensitive &&
  operation.role === "owner" &&
  provedAt !== null &&
  now - provedAt.getTime() > proofLasts
    ? proveAgain
    : undefined

/** Whether the credential would be let in still, for answers that go on for long. */
const stillHolds = (
  access: Access["Service"],
  credential: Credential,
  addressed: string | null,
  audience: Audience,
  operation: Operation
): Effect.Effect<boolean, StoreUnavailable> =>
  Effect.map(
    access.identify(credential, addressed, audience),
    Option.exists(
      ({ organization }) =>
        organization !== null && (operation.role === null || rank[organization.role] >= rank[operation.role])
    )
  )

const isEnvironmentSlug = Schema.is(EnvironmentSlug)

const environmentOf = (request: HttpServerRequest.HttpServerRequest): string | undefined => {
  const query = request.url.indexOf("?")
  if (query === -1) return undefined
  return new URLSearchParams(request.url.slice(query + 1)).get("environment") ?? undefined
}
