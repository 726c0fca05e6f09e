/**
 * What stands before the protocol: who calls, and whether what the messages ask for lacks a credential or a scope. Only
 * HTTP can say so in the way that clients act on (RFC 6750; RFC 9728, section 5.1; MCP, "Authorization"). It decides
 * nothing that the API does not decide again.
 */
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import type * as HttpServerRequest from "effect/http/HttpServerRequest"
import type * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Option from "effect/Option"
import { type Access, credentialOf } from "#src/access/Access.ts"
import { baseline, grantable } from "#src/agents/scopes.ts"
import { isObject } from "#src/api/definition/json-schema.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { Caller } from "./caller.ts"
import { rpcError } from "./refusal.ts"
import { readingOf, subscribing } from "./resources.ts"

export class Challenge extends Data.TaggedError("Challenge")<{
  readonly status: 401 | 403
  /** RFC 6750, section 3.1; absent where no credential came. */
  readonly error?: "invalid_token" | "insufficient_scope"
  readonly message: string
  /** Id of the message that is refused. */
  readonly id?: unknown
  /** What a client should ask for next, all of it. */
  readonly scopes: ReadonlyArray<string>
  /** Which of it was not granted. */
  readonly lacking?: ReadonlyArray<string>
}> {}

/** Whose credential came with the request; undefined: none came. */
export const identify = Effect.fnUntraced(function* (
  access: Access["Service"],
  { headers }: HttpServerRequest.HttpServerRequest
): Effect.fn.Return<Caller | undefined, Challenge | StoreUnavailable> {
  const { authorization } = headers
  if (authorization === undefined) return undefined
  const credential = Option.getOrUndefined(credentialOf(authorization, undefined))
  // A session is a person's, who needs no tools.
  if (credential === undefined || credential.kind === "session") return yield* dead
  const found = Option.getOrUndefined(yield* access.identify(credential, null, "mcp"))
  if (found === undefined || found.organization === null) return yield* dead
  return { credential, identity: found, organization: found.organization }
})

/** Also where none is needed: a client that sent one wants to know that it has ended. */
const dead = new Challenge({
  status: 401,
  error: "invalid_token",
  message: "The credential does not hold, or not any more",
  scopes: baseline
})

/** What a message lacks: a credential that did not come, or a scope that was not granted. Undefined: nothing. */
export const admit = (message: unknown, caller: Caller | undefined): Challenge | undefined => {
  const wanted = operationsOf(message)?.filter((id) => grantable.has(id))
  if (wanted === undefined) return undefined
  const id = isObject(message) ? message["id"] : undefined
  if (caller === undefined)
    return new Challenge({
      status: 401,
      message: "Sign in, or send an API key; tools/list and search need neither",
      id,
      scopes: [...new Set([...baseline, ...wanted])]
    })
  const held = caller.identity.grant?.scopes
  const lacking = held === undefined ? [] : wanted.filter((one) => !held.includes(one))
  if (held === undefined || lacking.length === 0) return undefined
  return new Challenge({
    status: 403,
    error: "insufficient_scope",
    message: `${lacking.join(" ")} was not granted`,
    id,
    // What it has too: a client asks for exactly what is said here.
    scopes: [...held, ...lacking],
    lacking
  })
}

/** Ids of the operations that a message asks for; undefined: it asks for nothing that needs a credential. */
const operationsOf = (message: unknown): ReadonlyArray<string> | undefined => {
  if (!isObject(message) || !isObject(message["params"])) return undefined
  const { method, params } = message
  switch (method) {
    case "tools/call": {
      if (params["name"] !== "execute") return undefined
      const order = params["arguments"]
      return isObject(order) && typeof order["operation"] === "string" ? [order["operation"]] : []
    }
    case "resources/read": {
      const reading = readingOf(params["uri"])
      return reading === undefined ? [] : [reading.operation]
    }
    case "subscriptions/listen":
      return followedBy(message) === undefined ? undefined : [subscribing]
    default:
      return undefined
  }
}

/** The URIs that a message asks to follow; undefined: it asks for no such thing. */
export const followedBy = (message: unknown): ReadonlyArray<unknown> | undefined => {
  if (!isObject(message) || message["method"] !== "subscriptions/listen") return undefined
  const wanted = isObject(message["params"]) ? message["params"]["notifications"] : undefined
  const uris = isObject(wanted) ? wanted["resourceSubscriptions"] : undefined
  return Array.isArray(uris) && uris.length > 0 ? uris : undefined
}

export const toResponse = (
  { status, error, message, scopes, id }: Challenge,
  origin: string
): HttpServerResponse.HttpServerResponse => {
  const fields = [
    ...(error === undefined ? [] : [`error="${error}"`, `error_description="${message}"`]),
    `scope="${scopes.join(" ")}"`,
    `resource_metadata="${origin}/.well-known/oauth-protected-resource/mcp"`
  ]
  return rpcError(
    {
      status,
      code: error ?? "unauthenticated",
      detail: message,
      headers: { "www-authenticate": `Bearer ${fields.join(", ")}` }
    },
    id
  )
}
