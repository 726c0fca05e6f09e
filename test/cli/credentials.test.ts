import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { credentialsFile, type Entry, readEntries, replaceEntry, useEntry } from "#src/cli/credentials.ts"

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
    assert.strictEqual(fs.statSync(credentialsFile()).mode & 0o777, 0o600)
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

it.live("the lock of a process that died while it held it does not last", () =>
  Effect.gen(function* () {
    yield* home
    const lock = `${credentialsFile()}.lock`
    fs.mkdirSync(path.dirname(lock), { recursive: true })
    fs.writeFileSync(lock, "1\n")
    const old = Date.now() / 1000 - 60
    fs.utimesSync(lock, old, old)
    yield* useEntry(entry("http://127.0.0.1:8787", "kept"))
    assert.strictEqual((yield* readEntries).length, 1)
    assert.isFalse(fs.existsSync(lock))
  }).pipe(Effect.scoped)
)
