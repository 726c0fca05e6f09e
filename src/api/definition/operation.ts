/**
 * What is known of an operation besides its path and its types. Authorization, rate limits, the audit log, the
 * specification and the command line all read it from here; there is no second list.
 *
 * Deny by default: an endpoint without this annotation stops the server from starting.
 */
import * as Context from "effect/Context"
import * as OpenApi from "effect/http-api/OpenApi"
import type { Role } from "#schemas/kind.ts"
import type { AccessTable } from "#src/store/records.ts"

export type Risk = "read" | "write" | "destructive" | "dangerous"
/** How a caller proves who it is. More kinds join here and in `src/access/`. */
export type CredentialKind = "session" | "key"

/** What a path names beyond its organization. It is looked up before the request's body is read. */
export type Target =
  /** Nothing but the organization. */
  | { readonly type: "organization" }
  /** `{projectId}`, and the environment of the query if one is given. */
  | { readonly type: "project" }
  /** `{projectId}` and the environment of the query, `production` when it names none. */
  | { readonly type: "environment" }
  /** A resource by its id; of this kind in `{projectId}`, or of any kind in the organization. */
  | { readonly type: "resource"; readonly param: string; readonly kind?: string }
  /** A member, an invitation, a key or a grant of the organization, by its id. */
  | { readonly type: "record"; readonly param: string; readonly table: AccessTable }

export interface Operation {
  readonly id: string
  readonly risk: Risk
  /** Elevated blast radius. */
  readonly sensitive: boolean
  /** Lowest role in the addressed organization; null: whoever is authenticated. */
  readonly role: Role | null
  /** Whether the organization's billing must be active (402 otherwise). */
  readonly billing: boolean
  /** Empty: the operation is public. */
  readonly credentials: ReadonlyArray<CredentialKind>
  readonly target: Target | null
  /** Bytes of the longest body. */
  readonly longestBody: number
}

const usualBody = 1024 * 1024

export const Operation = Context.Reference<Operation | undefined>("svc/api/Operation", {
  defaultValue: () => undefined
})

const both: ReadonlyArray<CredentialKind> = ["key", "session"]
/** What keys never do: manage keys, billing or members. */
export const sessionOnly: ReadonlyArray<CredentialKind> = ["session"]

interface Traits {
  readonly sensitive?: boolean
  readonly billing?: boolean
  readonly credentials?: ReadonlyArray<CredentialKind>
  readonly target?: Target
  readonly longestBody?: number
  /**
   * It honours `If-Match` without a parameter of its own in the typed client; the specification gets one all the
   * same. (The field is read before the handler, for every operation alike.)
   */
  readonly conditional?: boolean
}

const ifMatchParameter = {
  name: "if-match",
  in: "header",
  required: false,
  schema: { type: "string", description: "ETag of the state that the change is based on (RFC 9110)" }
}

/**
 * Annotates an endpoint: `.annotateMerge(operation("caches.create", "write", "admin", "Create a cache", { billing: true }))`.
 * By default an operation takes keys and sessions and its path names an organization only.
 */
export const operation = (
  id: string,
  risk: Risk,
  role: Role,
  summary: string,
  traits: Traits = {}
): Context.Context<never> =>
  annotate(
    {
      id,
      risk,
      role,
      sensitive: traits.sensitive ?? false,
      billing: traits.billing ?? false,
      credentials: traits.credentials ?? both,
      target: traits.target ?? { type: "organization" },
      longestBody: traits.longestBody ?? usualBody
    },
    summary,
    traits.conditional === true ? [ifMatchParameter] : []
  )

/** An operation that anybody may call. */
export const publicOperation = (id: string, summary: string, risk: Risk = "read"): Context.Context<never> =>
  annotate(
    {
      id,
      risk,
      role: null,
      sensitive: false,
      billing: false,
      credentials: [],
      target: null,
      longestBody: usualBody
    },
    summary
  )

/** An operation that addresses no organization: about the caller, or about one that the caller is yet to reach. */
export const callerOperation = (
  id: string,
  summary: string,
  traits: {
    readonly risk?: Risk
    readonly role?: Role
    readonly sensitive?: boolean
    readonly credentials?: ReadonlyArray<CredentialKind>
  } = {}
): Context.Context<never> =>
  annotate(
    {
      id,
      risk: traits.risk ?? "read",
      role: traits.role ?? null,
      sensitive: traits.sensitive ?? false,
      billing: false,
      credentials: traits.credentials ?? both,
      target: null,
      longestBody: usualBody
    },
    summary
  )

const annotate = (
  meta: Operation,
  summary: string,
  moreParameters: ReadonlyArray<object> = []
): Context.Context<never> =>
  OpenApi.annotations({
    identifier: meta.id,
    summary,
    transform: (described) => ({
      ...described,
      parameters: [...(described["parameters"] ?? []), ...moreParameters]
    }),
    override: {
      "x-risk": meta.risk,
      "x-sensitive": meta.sensitive,
      "x-role": meta.role,
      "x-billing": meta.billing,
      "x-credentials": meta.credentials,
      security: meta.credentials.map((kind) => ({ [kind]: [] }))
    }
  }).pipe(Context.add(Operation, meta))
