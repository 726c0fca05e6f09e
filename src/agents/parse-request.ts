/**
 * What an authorization request says (RFC 6749, section 4.1.1), judged in the order that keeps answers from going astray:
 * first the client and where its answer may go, told on a page when wrong; then everything else, told to the client.
 */
import * as Effect from "effect/Effect"
import type { Client, Clients } from "./Clients.ts"
import { AuthorizationRefused } from "./errors.ts"
import { isRegistered, withParams } from "./redirects.ts"
import { audienceOf, resourceOf } from "./resource-identifiers.ts"
import { baseline, type GrantRole, leastRole, parseScopes, reaches } from "./scopes.ts"

export interface Asked {
  readonly client: Client
  readonly redirectUri: string
  readonly state: string | null
  readonly challenge: string
  readonly role: GrantRole
  readonly scopes: ReadonlyArray<string>
}

const longestState = 1_000

export const parseRequest = (clients: Clients["Service"], issuer: string) =>
  Effect.fnUntraced(function* (query: URLSearchParams): Effect.fn.Return<Asked, AuthorizationRefused> {
    /** Parameters come once (RFC 6749, section 3.1). */
    const repeated = [...new Set(query.keys())].find(
      (name) => name !== "resource" && query.getAll(name).length > 1
    )
    const once = (name: string) =>
      query.getAll(name).length === 1 ? (query.get(name) ?? undefined) : undefined
    const onPage = (error: string, message: string) =>
      new AuthorizationRefused({ error, message, redirect: null })

    const client = yield* Effect.mapError(clients.find(once("client_id") ?? ""), ({ message }) =>
      onPage("invalid_client", message)
    )
    const redirectUri = once("redirect_uri")
    if (redirectUri === undefined || !isRegistered(client.redirectUris, redirectUri)) {
      return yield* onPage(
        "invalid_request",
        "The program asks for an answer at an address that is not its own."
      )
    }

    const state = once("state") ?? null
    const stateHolds = state === null || (state.length <= longestState && /^[\x20-\x7e]*$/.test(state))
    const refuse = (error: string, message: string) =>
      new AuthorizationRefused({
        error,
        message,
        redirect: withParams(redirectUri, {
          error,
          error_description: message,
          state: stateHolds ? state : null,
          iss: issuer
        })
      })
    if (repeated !== undefined) return yield* refuse("invalid_request", `${shown(repeated)} is given twice`)
    if (!stateHolds) {
      return yield* refuse("invalid_request", `state has at most ${longestState} characters of ASCII`)
    }
    if (once("response_type") !== "code") {
      return yield* refuse("unsupported_response_type", "response_type must be code")
    }
    const mode = once("response_mode") ?? "query"
    if (mode !== "query") return yield* refuse("invalid_request", "response_mode must be query")
    if (query.has("request") || query.has("request_uri")) {
      return yield* refuse("request_not_supported", "Parameters are taken from the query alone")
    }
    const challenge = once("code_challenge")
    if (
      once("code_challenge_method") !== "S256" ||
      challenge === undefined ||
      !/^[\w-]{43}$/.test(challenge)
    ) {
      return yield* refuse("invalid_request", "PKCE with the method S256 is required")
    }
    if (!query.getAll("resource").every((one) => audienceOf(issuer, one) === client.audience)) {
      const only = resourceOf(issuer, client.audience)
      return yield* refuse("invalid_target", `This program may ask for ${only} only`)
    }
    const given = once("scope") ?? ""
    const scopes = given.trim() === "" ? baseline : parseScopes(given)
    if (scopes === undefined || scopes.length === 0) {
      return yield* refuse("invalid_scope", "Scopes are ids of operations that agents may be granted")
    }
    const needed = leastRole(scopes)
    const role = once("role") ?? needed
    if ((role !== "admin" && role !== "member") || !reaches(role, needed)) {
      return yield* refuse("invalid_scope", `These scopes need the role ${needed}; role is member or admin`)
    }
    return { client, redirectUri, state, challenge, role, scopes }
  })

/** Names of parameters go into a header field, and anybody makes them up. */
const shown = (name: string) => (/^[a-z_]{1,40}$/.test(name) ? name : "a parameter")
