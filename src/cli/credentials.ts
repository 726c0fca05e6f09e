/**
 * The credentials of this machine's user, in one file that its owner alone can read.
 *
 * Each credential belongs to the control plane it was made for, by URL, and is never sent anywhere else. The one in
 * use is at the top; others (of other control planes, or of other data folders that serve at the same URL) are kept
 * beside it. Changes are made under a lock and replace the file as a whole.
 */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { attempt, configFolder, readText, replaceFile } from "./config-folder.ts"
import { failure } from "./failure.ts"
import { locked } from "./file-lock.ts"
import { end, SignInId } from "./tokens.ts"

const fields = {
  organization: Schema.optionalKey(Schema.String),
  apiKey: Schema.optionalKey(Schema.String),
  /** Owner's session: keys never hold that role. */
  session: Schema.optionalKey(Schema.String),
  /** A sign-in by browser. Its tokens are in a file of their own (`tokens.ts`). */
  signIn: Schema.optionalKey(SignInId),
  /** One of the bridge for MCP clients: it opens the MCP endpoint and nothing else. */
  mcpSignIn: Schema.optionalKey(SignInId)
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
export const credentialsFile = Effect.map(configFolder, (folder) => path.join(folder, "credentials.json"))

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
    failure(`${file} is damaged; move it away and sign in again: svc login, or svc admin credentials`)
  )
  const entries: ReadonlyArray<Entry> = apiUrl === undefined ? others : [{ apiUrl, ...current }, ...others]
  return entries
})

const writeEntries = Effect.fnUntraced(function* (file: string, entries: ReadonlyArray<Entry>) {
  const [current, ...others] = entries
  if (current === undefined)
    return yield* attempt(`Cannot remove ${file}`, () => fs.rm(file, { force: true }))
  const content = { ...current, ...(others.length > 0 ? { others } : {}) }
  const put = yield* replaceFile(file)
  yield* put(`${JSON.stringify(content, null, 2)}\n`)
}, Effect.scoped)

const signInsOf = (entries: ReadonlyArray<Entry>) =>
  entries.flatMap(({ mcpSignIn, signIn }) => [signIn, mcpSignIn].filter((id) => id !== undefined))

/** Changes the credentials as they are now. A sign-in that no entry has any more is ended. */
export const changeEntries = Effect.fnUntraced(function* (
  change: (entries: ReadonlyArray<Entry>) => ReadonlyArray<Entry>
) {
  const file = yield* credentialsFile
  const dropped = yield* locked(
    file,
    Effect.gen(function* () {
      const before = yield* readEntries
      const after = change(before).slice(0, mostOthers + 1)
      yield* writeEntries(file, after)
      const kept = new Set(signInsOf(after))
      return signInsOf(before).filter((id) => !kept.has(id))
    })
  )
  yield* Effect.forEach(dropped, end, { discard: true })
})

const sameTokens = (a: Entry, b: Entry) =>
  a.apiKey === b.apiKey && a.session === b.session && a.signIn === b.signIn && a.mcpSignIn === b.mcpSignIn

/** Makes a credential the one in use and keeps all others. */
export const useEntry = (entry: Entry) =>
  changeEntries((entries) => [entry, ...entries.filter((other) => !sameTokens(other, entry))])

/** Changes what is stored for an organization of a control plane, or begins with nothing, and makes it the one in use. */
export const amendEntry = (apiUrl: string, organization: string, change: (before: Entry) => Entry) =>
  changeEntries((entries) => {
    const found = entries.find((entry) => entry.apiUrl === apiUrl && entry.organization === organization)
    return [change(found ?? { apiUrl, organization }), ...entries.filter((other) => other !== found)]
  })

/** Makes a credential the one in use, instead of all there were for the same organization of the same control plane. */
export const replaceEntry = (entry: Entry) =>
  entry.organization === undefined
    ? useEntry(entry)
    : amendEntry(entry.apiUrl, entry.organization, () => entry)

/** Follows an organization to its new slug. */
export const renameOrganization = (apiUrl: string, before: string, after: string) =>
  changeEntries((entries) =>
    entries.map((entry) =>
      entry.apiUrl === apiUrl && entry.organization === before ? { ...entry, organization: after } : entry
    )
  )
