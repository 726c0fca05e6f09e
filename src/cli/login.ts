/**
 * Where the command line finds its server, its organization and its credentials: flags, then the environment, then
 * the nearest `svc.yaml` upwards (no secrets in there), then what `svc login` stored.
 */
import * as fs from "node:fs/promises"
import * as os from "node:os"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { parse } from "yaml"
import { failure } from "./failure.ts"

const Stored = Schema.Struct({
  apiUrl: Schema.optionalKey(Schema.String),
  organization: Schema.optionalKey(Schema.String),
  apiKey: Schema.optionalKey(Schema.String),
  /** Owner's session: keys never hold that role. */
  session: Schema.optionalKey(Schema.String)
})
export type Stored = typeof Stored.Type

const ProjectFile = Schema.Struct({
  apiUrl: Schema.optionalKey(Schema.String),
  organization: Schema.optionalKey(Schema.String),
  manifest: Schema.optionalKey(Schema.String)
})

export interface Login {
  readonly apiUrl: string
  readonly organization: string
  readonly apiKey: Redacted.Redacted | undefined
  readonly session: Redacted.Redacted | undefined
  /** Path of the manifest that `plan` and `apply` read when they are given none. */
  readonly manifest: string
}

export const credentialsFile = (): string => {
  const home = process.env["XDG_CONFIG_HOME"]
  return path.join(
    home === undefined || home === "" ? path.join(os.homedir(), ".config") : home,
    "svc",
    "credentials.json"
  )
}

const readText = (file: string) =>
  fs.readFile(file, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined
    throw error
  })
const attempt = <A>(what: string, body: () => Promise<A>) =>
  Effect.tryPromise({
    try: body,
    catch: (cause) => failure(`${what}: ${cause instanceof Error ? cause.message : String(cause)}`)
  })

const decodeStored = Schema.decodeUnknownEffect(Schema.fromJsonString(Stored))

export const readStored = Effect.gen(function* () {
  const file = credentialsFile()
  const text = yield* attempt(`Cannot read ${file}`, () => readText(file))
  if (text === undefined) return {} satisfies Stored
  return yield* Effect.mapError(decodeStored(text), () =>
    failure(`${file} is damaged; run "svc login" again`)
  )
})

/** Replaces the stored login as a whole, readable by its owner alone, never half written. */
export const writeStored = (stored: Stored) =>
  attempt("Cannot store the credentials", async () => {
    const file = credentialsFile()
    await fs.mkdir(path.dirname(file), { recursive: true, mode: 0o700 })
    const temporary = `${file}.${process.pid}`
    await fs.writeFile(temporary, `${JSON.stringify(stored, null, 2)}\n`, { mode: 0o600, flush: true })
    await fs.rename(temporary, file)
  })

/** The nearest `svc.yaml` upwards that is a settings file. */
const projectFile = attempt("Cannot read svc.yaml", async () => {
  for (let dir = process.cwd(); ; dir = path.dirname(dir)) {
    const text = await readText(path.join(dir, "svc.yaml"))
    if (text !== undefined) {
      const found = Schema.decodeUnknownOption(ProjectFile)(parse(text))
      if (found._tag === "Some") return { dir, ...found.value }
    }
    if (dir === path.dirname(dir)) return undefined
  }
})

const env = (name: string): string | undefined => {
  const value = process.env[name]
  return value === undefined || value === "" ? undefined : value
}
const secret = (text: string | undefined) => (text === undefined ? undefined : Redacted.make(text))

export const readLogin = Effect.fnUntraced(function* (flags: {
  readonly org?: string | undefined
  readonly apiUrl?: string | undefined
}) {
  const stored: Stored = yield* readStored
  const project = yield* projectFile
  const token = env("SVC_TOKEN")
  const isSession = token?.startsWith("svcs_") === true
  const login: Login = {
    apiUrl: (
      flags.apiUrl ??
      env("SVC_API_URL") ??
      project?.apiUrl ??
      stored.apiUrl ??
      "http://127.0.0.1:8787"
    ).replace(/\/+$/, ""),
    organization: flags.org ?? env("SVC_ORG") ?? project?.organization ?? stored.organization ?? "main",
    apiKey: secret(token ?? stored.apiKey),
    session: secret(token === undefined ? stored.session : isSession ? token : undefined),
    manifest: project?.manifest === undefined ? "svc.manifest.yaml" : path.join(project.dir, project.manifest)
  }
  return login
})
