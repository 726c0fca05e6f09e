/**
 * Where the command line finds its server, its organization and its credentials: flags, then the environment, then
 * the nearest `svc.yaml` upwards (no secrets in there), then what is stored.
 *
 * A folder somebody else wrote may hold a `svc.yaml` or a `.env`, so what they say decides where requests go, and
 * never where a credential goes: a stored one goes to the control plane it was made for, and a token of the
 * environment to where the environment, a flag or the stored login says.
 */
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { looksLikeUid } from "#schemas/names.ts"
import type { ClientId } from "./authorization-server.ts"
import type { Credential } from "./bearer.ts"
import { readText } from "./config-folder.ts"
import { type Entry, readEntries } from "./credentials.ts"
import { exitCodes, failure } from "./failure.ts"
import { Invocation } from "./invocation.ts"
import { shellWord } from "./shell-word.ts"

const ProjectFile = Schema.Struct({
  apiUrl: Schema.optionalKey(Schema.String),
  organization: Schema.optionalKey(Schema.String),
  project: Schema.optionalKey(Schema.String),
  manifest: Schema.optionalKey(Schema.String)
})

export interface Login {
  readonly apiUrl: string
  readonly organization: string
  readonly apiKey: Redacted.Redacted | undefined
  readonly session: Redacted.Redacted | undefined
  /** `SVC_TOKEN`, which then is the key, too, and may be the session. */
  readonly token: Redacted.Redacted | undefined
  /** Ids of sign-ins by browser: of this program, and of its bridge for MCP clients. */
  readonly signIn: string | undefined
  readonly mcpSignIn: string | undefined
  /** Why there is no credential, for who needs one. */
  readonly missing: string
  /** Path of the manifest that `plan` and `apply` read when they are given none. */
  readonly manifest: string
  /** That of the folder, which "." stands for. */
  readonly project: string | undefined
}

/** One spelling for each control plane. */
export const canonicalUrl = Effect.fnUntraced(function* (text: string, source: string) {
  const wrong = (why: string) => failure(`${source} names "${text}", which ${why}`, exitCodes.usage)
  if (!URL.canParse(text)) return yield* wrong("is not a URL")
  const url = new URL(text)
  if (url.protocol !== "http:" && url.protocol !== "https:") return yield* wrong("is neither http nor https")
  if (url.username !== "" || url.password !== "")
    return yield* failure(`${source} holds a credential; use svc login or SVC_TOKEN`, exitCodes.usage)
  // The name may mean another address for another program; the control plane listens on this one.
  if (url.protocol === "http:" && url.hostname === "localhost") url.hostname = "127.0.0.1"
  return `${url.origin}${url.pathname}`.replace(/\/+$/, "")
})

export const isLoopback = (apiUrl: string): boolean =>
  /^(127(\.\d{1,3}){3}|\[::1\]|localhost)$/.test(new URL(apiUrl).hostname)

/** The nearest `svc.yaml` upwards that is a settings file. */
export const projectFile = (from: string) =>
  Effect.tryPromise({
    try: async () => {
      for (let dir = from; ; dir = path.dirname(dir)) {
        const file = path.join(dir, "svc.yaml")
        const text = await readText(file)
        if (text !== undefined) {
          const { parse } = await import("yaml")
          const found = Schema.decodeUnknownOption(ProjectFile)(parse(text))
          if (found._tag === "Some") return { file, dir, ...found.value }
        }
        if (dir === path.dirname(dir)) return undefined
      }
    },
    catch: (cause) =>
      failure(`Cannot read svc.yaml: ${cause instanceof Error ? cause.message : String(cause)}`)
  })

const secret = (text: string | undefined) => (text === undefined ? undefined : Redacted.make(text))

interface LoginFlags {
  readonly org?: string | undefined
  readonly apiUrl?: string | undefined
}

export const readLogin = Effect.fnUntraced(function* (flags: LoginFlags) {
  const invocation = yield* Invocation
  const env = (name: string) => invocation.env[name] || undefined
  const isFromFolder = (name: string) => invocation.fromFolder.has(name)
  const entries = yield* readEntries
  const project = yield* projectFile(invocation.cwd)
  const named = [
    { source: "--api-url", url: flags.apiUrl, trusted: true },
    { source: "SVC_API_URL", url: env("SVC_API_URL"), trusted: !isFromFolder("SVC_API_URL") },
    { source: project?.file ?? "svc.yaml", url: project?.apiUrl, trusted: false },
    { source: "the stored login", url: entries[0]?.apiUrl, trusted: true },
    { source: "the default", url: `http://127.0.0.1:${env("SVC_PORT") ?? "8787"}`, trusted: true }
  ].find(({ url }) => url !== undefined)
  const source = named?.source ?? ""
  const apiUrl = yield* canonicalUrl(named?.url ?? "", source)
  const here = entries.filter((entry) => entry.apiUrl === apiUrl)
  const organization = flags.org ?? env("SVC_ORG") ?? project?.organization ?? here[0]?.organization ?? "main"
  const manifest =
    project?.manifest === undefined ? "svc.manifest.yaml" : path.join(project.dir, project.manifest)
  const common = { apiUrl, organization, manifest, project: project?.project }

  const token = env("SVC_TOKEN")
  if (token !== undefined) {
    const login: Login = {
      ...common,
      apiKey: secret(token),
      token: secret(token),
      session: token.startsWith("svcs_") ? secret(token) : undefined,
      signIn: undefined,
      mcpSignIn: undefined,
      missing: ""
    }
    const may = named?.trusted === true || isLoopback(apiUrl) || here.length > 0 || isFromFolder("SVC_TOKEN")
    if (may) return login
    const missing = `SVC_TOKEN is not sent to ${apiUrl}, because only ${source} names it. Set SVC_API_URL or --api-url to the same to allow it`
    return { ...login, apiKey: undefined, session: undefined, token: undefined, missing }
  }
  const { apiKey, mcpSignIn, session, signIn } = fitting(here, organization)
  const others = [...new Set(entries.map((entry) => entry.apiUrl))]
  const signing = [
    `Sign in with: svc login --api-url ${shellWord(apiUrl)}`,
    `Where nobody is at a browser: svc login --api-key --api-url ${shellWord(apiUrl)} < file-with-the-key; or set SVC_TOKEN`
  ]
  const operate = (more: string) =>
    isLoopback(apiUrl) ? [`Who operates the control plane on this machine: svc admin credentials${more}`] : []
  const login: Login = {
    ...common,
    apiKey: secret(apiKey),
    session: secret(session),
    token: undefined,
    signIn,
    mcpSignIn,
    missing: (here.length > 0
      ? [
          `There is no credential for the organization "${organization}" at ${apiUrl}: a sign-in or an API key opens its own organization only, and the stored ones are for ${here.map((entry) => `"${entry.organization}"`).join(", ")}.`,
          ...signing,
          ...operate(` --org ${shellWord(organization)}`)
        ]
      : [
          `There is no credential for ${apiUrl} (named by ${source}).`,
          ...(others.length > 0
            ? [`Stored ones are for ${others.join(", ")} and are sent nowhere else.`]
            : []),
          ...signing,
          ...operate("")
        ]
    ).join("\n")
  }
  return login
})

/** Acts in the organization: what was granted to this program before a key, and a key before a session. */
export const memberCredential = ({
  apiKey,
  session,
  signIn
}: Omit<Tokens, "token">): Credential | undefined =>
  signInCredential(signIn, "svc-cli") ?? tokenCredential(apiKey) ?? tokenCredential(session)

/** Does what takes a session, where there is one. */
export const ownerCredential = ({ apiKey, session, signIn }: Omit<Tokens, "token">): Credential | undefined =>
  tokenCredential(session) ?? signInCredential(signIn, "svc-cli") ?? tokenCredential(apiKey)

/**
 * Opens the MCP endpoint, which takes no session, and nothing that was granted for the API. A stored key is not lent to
 * models: the one of the first start may do what an admin may.
 */
export const mcpCredential = ({ mcpSignIn, token }: Tokens): Credential | undefined =>
  signInCredential(mcpSignIn, "svc-mcp") ?? tokenCredential(token)

type Tokens = Pick<Login, "apiKey" | "mcpSignIn" | "session" | "signIn" | "token">
const tokenCredential = (token: Redacted.Redacted | undefined): Credential | undefined =>
  token === undefined ? undefined : { _tag: "Token", token }
const signInCredential = (id: string | undefined, clientId: ClientId): Credential | undefined =>
  id === undefined ? undefined : { _tag: "SignIn", id, clientId }

/**
 * What of the credentials for one control plane opens an organization. A key and a sign-in open the one they were made
 * in; a session is a person's, and opens every organization of that person. An id cannot be compared with a slug, so
 * there those in use are tried where there is no session.
 */
export const fitting = (
  entries: ReadonlyArray<Entry>,
  organization: string
): { readonly [name in "apiKey" | "mcpSignIn" | "session" | "signIn"]: string | undefined } => {
  const [inUse] = entries
  const own = entries.find((entry) => (entry.organization ?? "main") === organization)
  const session = own?.session ?? entries.find((entry) => entry.session !== undefined)?.session
  const unknown = own === undefined && session === undefined && looksLikeUid(organization)
  const { apiKey, mcpSignIn, signIn } = (unknown ? inUse : own) ?? {}
  return { apiKey, mcpSignIn, session, signIn }
}
