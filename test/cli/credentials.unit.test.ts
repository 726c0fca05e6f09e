import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import {
  credentialsFile,
  type Entry,
  readEntries,
  renameOrganization,
  replaceEntry,
  useEntry
} from "#src/cli/credentials.ts"
import { fitting, readLogin } from "#src/cli/login.ts"

const home = Effect.acquireRelease(
  Effect.sync(() => {
    const before = process.env["XDG_CONFIG_HOME"]
    const dir = fs.mkdtempSync(path.join(os.tmpdir(), "svc-cli-"))
    process.env["XDG_CONFIG_HOME"] = dir
    return { before, dir }
  }),
  ({ before, dir }) =>
    Effect.sync(() => {
      if (before === undefined) delete process.env["XDG_CONFIG_HOME"]
      else process.env["XDG_CONFIG_HOME"] = before
      fs.rmSync(dir, { recursive: true, force: true })
    })
)
const entry = (apiUrl: string, apiKey: string): Entry => ({ apiUrl, organization: "main", apiKey })

it.live("changes at the same time lose nothing, and leave one file for its owner alone", () =>
  Effect.gen(function* () {
    const { dir } = yield* home
    const urls = Array.from({ length: 12 }, (_, i) => `http://127.0.0.1:${1000 + i}`)
    yield* Effect.forEach(urls, (url) => useEntry(entry(url, `key of ${url}`)), {
      concurrency: "unbounded",
      discard: true
    })
    const stored = yield* readEntries
    assert.sameMembers(
      stored.map(({ apiUrl }) => apiUrl),
      urls
    )
    assert.deepStrictEqual(fs.readdirSync(path.join(dir, "svc")), ["credentials.json"])
    assert.strictEqual(fs.statSync(yield* credentialsFile).mode & 0o777, 0o600)
  }).pipe(Effect.scoped)
)

it.live(
  "a first start keeps the credentials of another store at the same address; a new sign-in replaces them",
  () =>
    Effect.gen(function* () {
      yield* home
      const url = "http://127.0.0.1:8787"
      yield* useEntry(entry(url, "one store"))
      yield* useEntry(entry(url, "another store"))
      yield* useEntry(entry("http://127.0.0.1:9999", "elsewhere"))
      assert.deepStrictEqual(
        (yield* readEntries).map(({ apiKey }) => apiKey),
        ["elsewhere", "another store", "one store"]
      )
      yield* replaceEntry(entry(url, "signed in anew"))
      assert.deepStrictEqual(
        (yield* readEntries).map(({ apiKey }) => apiKey),
        ["signed in anew", "elsewhere", "one store"]
      )
    }).pipe(Effect.scoped)
)

it.live(
  "signing in to a second organization keeps the credential of the first, and a new slug is followed",
  () =>
    Effect.gen(function* () {
      yield* home
      const url = "http://127.0.0.1:8787"
      yield* replaceEntry({ apiUrl: url, organization: "main", apiKey: "of main" })
      yield* replaceEntry({ apiUrl: url, organization: "other", apiKey: "of other" })
      yield* renameOrganization(url, "main", "first")
      yield* renameOrganization("http://127.0.0.1:9999", "other", "nothing")
      assert.deepStrictEqual(
        (yield* readEntries).map(({ organization, apiKey }) => [organization, apiKey]),
        [
          ["other", "of other"],
          ["first", "of main"]
        ]
      )
    }).pipe(Effect.scoped)
)

it("a key and a sign-in go to their own organization, and a session to every one of its person", () => {
  const none = { apiKey: undefined, mcpSignIn: undefined, session: undefined, signIn: undefined }
  const main = { apiUrl: "u", organization: "main", apiKey: "key of main", session: "session" }
  const other = { apiUrl: "u", organization: "other", apiKey: "key of other", signIn: "a", mcpSignIn: "b" }
  const uid = "01a20151-0901-77a2-8c9b-6ea457682604"
  const ofOther = { ...none, apiKey: "key of other", signIn: "a", mcpSignIn: "b" }
  assert.deepStrictEqual(fitting([main, other], "main"), {
    ...none,
    apiKey: "key of main",
    session: "session"
  })
  assert.deepStrictEqual(fitting([main, other], "other"), { ...ofOther, session: "session" })
  assert.deepStrictEqual(fitting([main], "made just now"), { ...none, session: "session" })
  assert.deepStrictEqual(fitting([main], uid), { ...none, session: "session" })
  assert.deepStrictEqual(fitting([other], "main"), none)
  assert.deepStrictEqual(fitting([other], uid), ofOther)
  assert.deepStrictEqual(fitting([{ apiUrl: "u", apiKey: "k" }], "main"), { ...none, apiKey: "k" })
  assert.deepStrictEqual(fitting([], "main"), none)
})

it.live("where no credential fits the organization, the command to run is named", () =>
  Effect.gen(function* () {
    yield* home
    const url = "http://127.0.0.1:8787"
    yield* useEntry({ apiUrl: url, organization: "main", apiKey: "of main" })
    const login = yield* readLogin({ org: "other", apiUrl: url })
    assert.deepStrictEqual([login.apiKey, login.session], [undefined, undefined])
    assert.include(login.missing, 'the organization "other"')
    assert.include(login.missing, 'the stored ones are for "main"')
    assert.include(login.missing, "svc login --api-key")
    assert.include(login.missing, "svc admin credentials --org other")
    assert.isDefined((yield* readLogin({ apiUrl: url })).apiKey)
  }).pipe(Effect.scoped)
)
