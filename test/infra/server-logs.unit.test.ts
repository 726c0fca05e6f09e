import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { logSince, logSize, shortenLogs } from "#src/infra/host/server-logs.ts"

const folder = Effect.acquireRelease(
  Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-logs-"))),
  (dir) => Effect.sync(() => fs.rmSync(dir, { recursive: true, force: true }))
)

it.effect("a log that has grown long is cut under the server that writes it; its end is kept", () =>
  Effect.gen(function* () {
    const dataDir = yield* folder
    const dir = path.join(dataDir, "databases", "one")
    fs.mkdirSync(dir, { recursive: true })
    const file = path.join(dir, "postgres.log")
    const server = fs.openSync(file, "a", 0o600)
    const line = `${"x".repeat(99)}\n`
    fs.writeSync(server, line.repeat(1000))
    yield* shortenLogs(dataDir)
    assert.strictEqual(yield* logSize(file), 100_000, "a short one is left alone")

    fs.writeSync(server, line.repeat(200_000))
    fs.writeSync(server, "the last line\n")
    yield* shortenLogs(dataDir)
    assert.strictEqual(yield* logSize(file), 0)
    assert.strictEqual(fs.statSync(`${file}.old`).size, 1 << 20)
    assert.isTrue(fs.readFileSync(`${file}.old`, "utf8").endsWith("the last line\n"))
    fs.writeSync(server, "goes on\n")
    assert.strictEqual(fs.readFileSync(file, "utf8"), "goes on\n", "and not behind a hole")
    fs.closeSync(server)
  }).pipe(Effect.scoped)
)

it.effect("what stands in the place of a log and leads elsewhere is not touched", () =>
  Effect.gen(function* () {
    const dataDir = yield* folder
    const dir = path.join(dataDir, "databases", "one")
    fs.mkdirSync(dir, { recursive: true })
    const elsewhere = path.join(dataDir, "elsewhere")
    fs.writeFileSync(elsewhere, "")
    fs.truncateSync(elsewhere, 17 << 20)
    fs.symlinkSync(elsewhere, path.join(dir, "postgres.log"))
    yield* shortenLogs(dataDir)
    assert.strictEqual(fs.statSync(elsewhere).size, 17 << 20)
  }).pipe(Effect.scoped)
)

it.effect("of a long log only the end of what is new is read", () =>
  Effect.gen(function* () {
    const dataDir = yield* folder
    const file = path.join(dataDir, "log")
    fs.writeFileSync(file, "old")
    const before = yield* logSize(file)
    fs.appendFileSync(file, "new")
    assert.strictEqual(yield* logSince(file, before), "new")
    fs.truncateSync(file, 600 << 20)
    fs.appendFileSync(file, "FATAL: it ends")
    const said = yield* logSince(file, before)
    assert.isTrue(said.endsWith("FATAL: it ends"))
    assert.isAtMost(said.length, 64 << 10)
    fs.writeFileSync(file, "cut")
    assert.strictEqual(yield* logSince(file, before + 1), "cut")
    assert.strictEqual(yield* logSince(path.join(dataDir, "none"), 0), "")
  }).pipe(Effect.scoped)
)
