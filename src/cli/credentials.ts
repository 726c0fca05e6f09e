/**
 * The credentials of this machine's user, in one file that its owner alone can read.
 *
 * Each credential belongs to the control plane it was made for, by URL, and is never sent anywhere else. The one in
 * use is at the top; others (of other control planes, or of other data folders that serve at the same URL) are kept
 * beside it. Changes are made under a lock and replace the file as a whole.
 */
import * as fs from "node:fs/promises"
import * as os from "node:os"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { failure } from "./failure.ts"
import { variable } from "./invocation.ts"

const fields = {
  organization: Schema.optionalKey(Schema.String),
  apiKey: Schema.optionalKey(Schema.String),
  /** Owner's session: keys never hold that role. */
  session: Schema.optionalKey(Schema.String)
}
const Entry = Schema.Struct({ apiUrl: Schema.String, ...fields })
const File = Schema.Struct({
  apiUrl: Schema.optionalKey(Schema.String),
  ...fields,
  others: Schema.optionalKey(Schema.Array(Entry))
})
export type Entry = typeof Entry.Type

/** So many are kept besides the one in use. */
const mostOthers = 20
/** A lock this old belongs to a process that is no more: changing the file takes milliseconds. */
const staleMs = 10_000

export const credentialsFile = Effect.map(variable("XDG_CONFIG_HOME"), (home) =>
  path.join(home ?? path.join(os.homedir(), ".config"), "svc", "credentials.json")
)

const attempt = <A>(what: string, body: () => Promise<A>) =>
  Effect.tryPromise({
    try: body,
    catch: (cause) => failure(`${what}: ${cause instanceof Error ? cause.message : String(cause)}`)
  })

const hasCode = (error: unknown, code: string) =>
  error instanceof Error && "code" in error && error.code === code

export const readText = (file: string): Promise<string | undefined> =>
  fs.readFile(file, "utf8").catch((error: unknown) => {
    if (hasCode(error, "ENOENT")) return undefined
    throw error
  })

const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(File))

/** Every credential there is, the one in use first. */
export const readEntries = Effect.gen(function* () {
  const file = yield* credentialsFile
  const text = yield* attempt(`Cannot read ${file}`, () => readText(file))
  if (text === undefined) return []
  const {
    others = [],
    apiUrl,
    ...current
  } = yield* Effect.mapError(decode(text), () =>
    failure(
      `${file} is damaged; move it away and sign in again: svc login --api-key, or svc admin credentials`
    )
  )
  const entries: ReadonlyArray<Entry> = apiUrl === undefined ? others : [{ apiUrl, ...current }, ...others]
  return entries
})

const writeEntries = (file: string, entries: ReadonlyArray<Entry>) =>
  attempt("Cannot store the credentials", async () => {
    const [current, ...others] = entries
    if (current === undefined) return fs.rm(file, { force: true })
    const temporary = `${file}.${process.pid}`
    const content = { ...current, ...(others.length > 0 ? { others: others.slice(0, mostOthers) } : {}) }
    await fs.writeFile(temporary, `${JSON.stringify(content, null, 2)}\n`, { mode: 0o600, flush: true })
    await fs.rename(temporary, file)
  })

const locked = <A, E, R>(file: string, self: Effect.Effect<A, E, R>) =>
  Effect.acquireUseRelease(
    attempt("Cannot lock the credentials", async () => {
      const lock = `${file}.lock`
      await fs.mkdir(path.dirname(lock), { recursive: true, mode: 0o700 })
      for (let tries = 0; ; tries++) {
        try {
          await fs.writeFile(lock, `${process.pid}\n`, { flag: "wx", mode: 0o600 })
          return lock
        } catch (error) {
          if (!hasCode(error, "EEXIST") || tries > 1_000) throw error
          const age = await fs.stat(lock).then(
            ({ mtimeMs }) => Date.now() - mtimeMs,
            () => 0
          )
          if (age > staleMs) await fs.rm(lock, { force: true })
          await new Promise((resolve) => setTimeout(resolve, 20))
        }
      }
    }),
    () => self,
    (lock) => Effect.promise(() => fs.rm(lock, { force: true }))
  )

/** Changes the credentials as they are now. */
export const changeEntries = (change: (entries: ReadonlyArray<Entry>) => ReadonlyArray<Entry>) =>
  Effect.flatMap(credentialsFile, (file) =>
    locked(
      file,
      Effect.flatMap(readEntries, (entries) => writeEntries(file, change(entries)))
    )
  )

const sameTokens = (a: Entry, b: Entry) => a.apiKey === b.apiKey && a.session === b.session

/** Makes a credential the one in use and keeps all others. */
export const useEntry = (entry: Entry) =>
  changeEntries((entries) => [entry, ...entries.filter((other) => !sameTokens(other, entry))])

/** Makes a credential the one in use, instead of the one for the same organization of the same control plane. */
export const replaceEntry = (entry: Entry) =>
  changeEntries((entries) => {
    const replaced = entries.find(
      ({ apiUrl, organization }) => apiUrl === entry.apiUrl && organization === entry.organization
    )
    return [entry, ...entries.filter((other) => other !== replaced)]
  })

/** Follows an organization to its new slug. */
export const renameOrganization = (apiUrl: string, before: string, after: string) =>
  changeEntries((entries) =>
    entries.map((entry) =>
      entry.apiUrl === apiUrl && entry.organization === before ? { ...entry, organization: after } : entry
    )
  )
