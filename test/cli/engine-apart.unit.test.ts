/** The engine on a thread of its own: what becomes of the rest when the thread ends. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { makeEngineApart } from "#src/cli/engine-apart.ts"

const standIn = new URL("./engine-stand-in.ts", import.meta.url)

const withLog = Effect.map(
  Effect.acquireRelease(
    Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-engine-apart-"))),
    (folder) => Effect.sync(() => fs.rmSync(folder, { recursive: true, force: true }))
  ),
  (folder) => {
    const log = path.join(folder, "log")
    fs.writeFileSync(log, "")
    return { log, said: () => fs.readFileSync(log, "utf8").trim().split("\n") }
  }
)

it.live("a thread that ends by itself is started again, and one that is told to stop drains first", () =>
  Effect.gen(function* () {
    const { log, said } = yield* withLog
    const { run, metrics } = makeEngineApart({ LOG: log, HOW: "faults" }, standIn)
    assert.deepStrictEqual(yield* metrics, [])
    const fiber = yield* Effect.forkScoped(run)
    yield* Effect.repeat(Effect.delay(metrics, "20 millis"), { until: ([page]) => page === "starts 2\n" })
    assert.deepStrictEqual(said(), ["started", "started"])
    yield* Fiber.interrupt(fiber)
    assert.deepStrictEqual(said(), ["started", "started", "drained"])
    // What was counted does not fall when nobody answers.
    assert.deepStrictEqual(yield* metrics, ["starts 2\n"])
  })
)

it.live("an engine that cannot be started says why, and is not tried again", () =>
  Effect.gen(function* () {
    const { log, said } = yield* withLog
    const { run } = makeEngineApart({ LOG: log, HOW: "refuses" }, standIn)
    const error = yield* Effect.flip(run)
    assert.strictEqual(error.message, "there is no such region")
    assert.deepStrictEqual(said(), ["started"])
  })
)
