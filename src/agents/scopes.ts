/**
 * Scopes of grants are ids of operations. What may be granted follows from the operations' definitions: whatever takes a
 * grant as its credential (`src/api/definition/operation.ts`).
 */
import * as Context from "effect/Context"
import * as OpenApi from "effect/http-api/OpenApi"
import { Api } from "#src/api/definition/api.ts"
import { Operation } from "#src/api/definition/operation.ts"

export interface GrantableOperation extends Operation {
  /** A line of words on what it does. */
  readonly summary: string
}

/** Roles that a grant may have, the lower one first. */
export type GrantRole = "member" | "admin"

/** Every operation that an agent may be granted, by its id. */
export const grantable: ReadonlyMap<string, GrantableOperation> = new Map(
  Object.values(Api.groups).flatMap((group) =>
    Object.values(group.endpoints).flatMap(({ annotations }): ReadonlyArray<[string, GrantableOperation]> => {
      const operation = Context.get(annotations, Operation)
      if (operation === undefined || !operation.credentials.includes("grant")) return []
      return [
        [operation.id, { ...operation, summary: Context.getOrUndefined(annotations, OpenApi.Summary) ?? "" }]
      ]
    })
  )
)

/** What a client is asked to ask for first, and gets where it names no scope: to look, not to touch. */
export const baseline: ReadonlyArray<string> = [...grantable.values()]
  .filter(({ risk, role, sensitive }) => risk === "read" && role !== "admin" && !sensitive)
  .map(({ id }) => id)

/** The lowest role in which all of these operations can be called. */
export const leastRole = (scopes: ReadonlyArray<string>): GrantRole =>
  scopes.some((scope) => grantable.get(scope)?.role === "admin") ? "admin" : "member"

export const reaches = (role: GrantRole, needed: GrantRole): boolean =>
  role === "admin" || needed === "member"

/**
 * The scopes of a request as it wrote them (RFC 6749, section 3.3), each once, in one order; undefined: there is one that
 * no agent may be granted. `offline_access`, which OpenID Connect clients add, means nothing here: every grant refreshes.
 */
export const parseScopes = (text: string): ReadonlyArray<string> | undefined => {
  const scopes = [...new Set(text.split(" "))]
    .filter((scope) => scope !== "" && scope !== "offline_access")
    .sort()
  return scopes.every((scope) => grantable.has(scope)) ? scopes : undefined
}
