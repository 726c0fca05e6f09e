/**
 * What every handler has around it, in the order of checks that `authorize.ts` begins: faults that the schemas cannot see
 * (422), billing (402), and then the handler, whose problems become responses.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type * as HttpServerResponse from "effect/http/HttpServerResponse"
import type * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import { Operation } from "./definition/operation.ts"
import type { Fault } from "./definition/problem.ts"
import { RequestScope } from "./definition/scope.ts"
import { pointerTo, rootOf } from "./failure.ts"
import { invalid, type Problem, problem, toResponse } from "./problem.ts"

const unpaid = problem(
  402,
  "billing_inactive",
  "Billing of the organization is not active; an owner must activate it"
)

/** Fails if the operation needs active billing and the organization's is not. */
export const billing: Effect.Effect<void, Problem, RequestScope> = Effect.flatMap(
  RequestScope,
  ({ operation, billingActive }) => (billingActive || !operation.billing ? Effect.void : Effect.fail(unpaid))
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

type AnyHandler = (request: never) => Effect.Effect<unknown, Problem, unknown>

/** Handlers that can say whether a request is valid only after they looked further, and ask for `billing` themselves. */
const late = new WeakSet<AnyHandler>()
export const billedLate = <Handler extends AnyHandler>(handler: Handler): Handler => {
  late.add(handler)
  return handler
}

export const handlersOf =
  <Group extends { readonly endpoints: object }>(group: Group) =>
  <Handlers extends HandlersOf<Group>>(
    handlers: Handlers
  ): { readonly [K in keyof Handlers]: Guarded<Handlers[K]> } => {
    const endpoints = new Map<string, HttpApiEndpoint.Top>(Object.entries(group.endpoints))
    const wrap = (name: string, handler: AnyHandler) => {
      const endpoint = endpoints.get(name)
      const operation = Context.get(endpoint?.annotations ?? Context.empty(), Operation)
      if (endpoint === undefined || operation === undefined) {
        throw new Error(`The operation ${name} has no metadata`)
      }
      const takesQuery = endpoint.query !== undefined
      const billed = late.has(handler) ? Effect.void : billing
      return (request: Parts) => {
        const faults = faultsBeyondSchemas(request, takesQuery)
        const checked = faults.length === 0 ? billed : Effect.fail(invalid(faults))
        return Effect.catchTag(Effect.andThen(checked, handler(request as never)), "Problem", toResponse)
      }
    }
    return Object.fromEntries(
      Object.entries<AnyHandler>(handlers).map(([name, handler]) => [name, wrap(name, handler)])
    ) as unknown as { readonly [K in keyof Handlers]: Guarded<Handlers[K]> }
  }

interface Parts {
  readonly request: { readonly url: string }
  readonly query?: unknown
  readonly payload?: unknown
}

const faultsBeyondSchemas = (request: Parts, takesQuery: boolean): ReadonlyArray<Fault> => {
  const faults: Array<Fault> = []
  const { url } = request.request
  const question = url.indexOf("?")
  // Where an operation has no query at all, the framework does not look at it.
  if (!takesQuery && question !== -1) {
    for (const name of new URLSearchParams(url.slice(question + 1)).keys()) {
      faults.push({ pointer: rootOf.Query + pointerTo([name]), message: "is no parameter of this operation" })
    }
  }
  if (request.query !== undefined) unstorable(request.query, rootOf.Query, faults)
  if (request.payload !== undefined) unstorable(request.payload, rootOf.Payload, faults)
  return faults
}

/**
 * Text that would not come back as it was given: neither Postgres nor a process's environment holds the NUL
 * character, and half of a surrogate pair has no UTF-8.
 */
const unstorable = (value: unknown, pointer: string, faults: Array<Fault>): void => {
  if (typeof value === "string") {
    if (value.includes("\0")) faults.push({ pointer, message: "must not contain the NUL character" })
    else if (!value.isWellFormed())
      faults.push({ pointer, message: "must be Unicode text without lone surrogates" })
  } else if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) unstorable(value[i], `${pointer}/${i}`, faults)
  } else if (
    typeof value === "object" &&
    value !== null &&
    Object.getPrototypeOf(value) === Object.prototype
  ) {
    for (const [key, inner] of Object.entries(value)) unstorable(inner, pointer + pointerTo([key]), faults)
  }
}
