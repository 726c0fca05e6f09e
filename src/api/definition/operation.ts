/**
 * What is known of an operation besides its path and its types. Authorization, rate limits, the audit log, the
 * specification and the command line all read it from here; there is no second list.
 *
 * Deny by default: an endpoint without this annotation stops the server from starting.
 */
import * as Context from "effect/Context"
import * as HttpApiGroup from "effect/http-api/HttpApiGroup"
import * as OpenApi from "effect/http-api/OpenApi"
import type { Role } from "#schemas/kind.ts"
import type { CredentialKind } from "#src/access/Access.ts"
import type { AccessTable } from "#src/store/records.ts"

export type Risk = "read" | "write" | "destructive" | "dangerous"
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
  /** Empty: the operation is public. Agents may be granted what keys may do, short of what is for owners. */
  readonly credentials: ReadonlyArray<CredentialKind>
  /** Apps call it too, with the token of their environment, below `/v1/runtime`. */
  readonly apps: boolean
  readonly target: Target | null
  /** Bytes of the longest body. */
  readonly longestBody: number
  /** The handler reads the body as it comes, and bounds it; nothing else looks at it. Not with POST, which is replayed. */
  readonly streamed: boolean
  /** Its work begins with the body of its answer: whoever was answered a failure has had nothing begun. */
  readonly worksWhileAnswering: boolean
}

const usualBody = 1024 * 1024
/** Of operations that strangers may call. */
const usualPublicBody = 16 * 1024

export const Operation = Context.Reference<Operation | undefined>("svc/api/Operation", {
  defaultValue: () => undefined
})

/** A group of operations, with a sentence on what they are about. */
export const group = <const Name extends string>(name: Name, description: string) =>
  HttpApiGroup.make(name).annotate(OpenApi.Description, description)

const both: ReadonlyArray<CredentialKind> = ["key", "session"]
/** What keys never do: manage keys, billing or members. */
export const sessionOnly: ReadonlyArray<CredentialKind> = ["session"]

interface Traits {
  readonly sensitive?: boolean
  readonly billing?: boolean
  readonly credentials?: ReadonlyArray<CredentialKind>
  readonly apps?: boolean
  readonly target?: Target
  readonly longestBody?: number
  /** Media type of a body that the handler reads as it comes. */
  readonly streams?: string
  readonly worksWhileAnswering?: boolean
  /**
   * It honours `If-Match` without a parameter of its own in the typed client; the specification gets one all the
   * same. (The field is read before the handler, for every operation alike.)
   */
  readonly conditional?: boolean
  /** What a successful answer may have or be besides what the typed client reads. */
  readonly alsoAnswers?: AlsoAnswers
}

interface AlsoAnswers {
  /** Names of header fields. */
  readonly headers?: ReadonlyArray<string>
  /** Bodies by media type. */
  readonly content?: Readonly<Record<string, object>>
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
      apps: traits.apps ?? false,
      target: traits.target ?? { type: "organization" },
      longestBody: traits.longestBody ?? usualBody,
      streamed: traits.streams !== undefined,
      worksWhileAnswering: traits.worksWhileAnswering ?? false
    },
    summary,
    traits
  )

/** An operation that anybody may call. */
export const publicOperation = (
  id: string,
  summary: string,
  risk: Risk = "read",
  traits: Pick<Traits, "sensitive" | "longestBody"> = {}
): Context.Context<never> =>
  annotate(
    {
      id,
      risk,
      role: null,
      sensitive: traits.sensitive ?? false,
      billing: false,
      credentials: [],
      apps: false,
      target: null,
      longestBody: traits.longestBody ?? usualPublicBody,
      streamed: false,
      worksWhileAnswering: false
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
      apps: false,
      target: null,
      longestBody: usualBody,
      streamed: false,
      worksWhileAnswering: false
    },
    summary
  )

const annotate = (
  described: Operation,
  summary: string,
  {
    conditional = false,
    alsoAnswers = {},
    streams
  }: Pick<Traits, "conditional" | "alsoAnswers" | "streams"> = {}
): Context.Context<never> => {
  const meta: Operation = { ...described, credentials: withGrants(described) }
  return OpenApi.annotations({
    identifier: meta.id,
    summary,
    description: conditionsOf(meta),
    transform: (described) => ({
      ...described,
      parameters: [...(described["parameters"] ?? []), ...(conditional ? [ifMatchParameter] : [])],
      ...(streams === undefined
        ? {}
        : {
            requestBody: {
              required: true,
              content: { [streams]: { schema: { type: "string", format: "binary" } } }
            }
          }),
      responses: withMore(described["responses"], alsoAnswers)
    }),
    override: {
      "x-risk": meta.risk,
      "x-sensitive": meta.sensitive,
      "x-role": meta.role,
      "x-billing": meta.billing,
      "x-credentials": meta.credentials,
      security: meta.credentials.map((kind) => ({ [kind]: kind === "grant" ? [meta.id] : [] }))
    }
  }).pipe(Context.add(Operation, meta))
}

const withGrants = ({ credentials, role }: Operation): ReadonlyArray<CredentialKind> =>
  credentials.includes("key") && role !== "owner" ? [...credentials, "grant"] : credentials

const inWords: Readonly<Record<CredentialKind, string>> = {
  key: "an API key",
  session: "a session",
  grant: "a grant with its scope",
  app: "the token of an app",
  maintenance: "the maintenance of a project"
}

/** What must be so for the operation to be carried out, as sentences. */
const conditionsOf = ({ credentials, apps, role, billing }: Operation): string =>
  [
    credentials.length === 0
      ? "Takes no credential."
      : `Takes ${credentials.map((kind) => inWords[kind]).join(" or ")}.`,
    ...(apps ? ["Apps call it below `/v1/runtime`."] : []),
    ...(role === null ? [] : [`The lowest role is ${role}.`]),
    ...(billing ? ["The organization's billing must be active."] : [])
  ].join(" ")

type Answers = Readonly<Record<string, { readonly headers?: object; readonly content?: object }>>

const withMore = (answers: Answers, { headers = [], content = {} }: AlsoAnswers): Answers =>
  Object.fromEntries(
    Object.entries(answers).map(([status, answer]) => [
      status,
      status.startsWith("2")
        ? {
            ...answer,
            headers: { ...answer.headers, ...Object.fromEntries(headers.map((name) => [name, {}])) },
            content: { ...answer.content, ...content }
          }
        : answer
    ])
  )
