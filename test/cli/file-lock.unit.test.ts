/** The lock that the processes of a user share. Processes that are killed: `sign-in.test.ts`. */
import { randomUUID } from "node:crypto"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { locked } from "#src/cli/file-lock.ts"
import { until } from "#test/setup/wait.ts"

const folder = Effect.acquireRelease(
  Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-lock-"))),
  (dir) => Effect.sync(() => fs.rmSync(dir, { recursive: true, force: true }))
)

/** Adds one, slowly enough for others to come between. */
const increment = (file: string) =>
  Effect.gen(function* () {
    const before = Number(fs.readFileSync(file, "utf8"))
    yield* Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
    fs.writeFileSync(file, String(before + 1))
  })

/** A process that there is no more; process ids end below 2^22 (proc(5)). */
const deadHolder = { id: randomUUID(), pid: 2 ** 22 + 1, began: "before", machine: "" }
const machine = `${os.hostname()} ${fs.readlinkSync("/proc/self/ns/pid")}`

it.live.skipIf(process.platform !== "linux")(
  "of many who find a dead holder's lock, each gets it alone, and nothing is left",
  () =>
    Effect.gen(function* () {
      const dir = yield* folder
      const file = path.join(dir, "number")
      for (const left of [
        JSON.stringify({ ...deadHolder, machine }),
        // The number is taken by another process since.
        JSON.stringify({ ...deadHolder, machine, pid: process.pid })
      ]) {
        fs.writeFileSync(file, "0")
        fs.writeFileSync(`${file}.lock`, left)
        yield* Effect.all(
          Array.from({ length: 20 }, () => locked(file, increment(file))),
          { concurrency: "unbounded", discard: true }
        )
        assert.strictEqual(fs.readFileSync(file, "utf8"), "20")
        assert.deepStrictEqual(fs.readdirSync(dir), ["number"])
      }
    }).pipe(Effect.scoped)
)

it.live("a holder elsewhere, and one that cannot be read, is dead once nobody could hold for so long", () =>
  Effect.gen(function* () {
    const dir = yield* folder
    const file = path.join(dir, "number")
    for (const left of [JSON.stringify({ ...deadHolder, machine: "another" }), "1\n", ""]) {
      fs.writeFileSync(file, "0")
      fs.writeFileSync(`${file}.lock`, left)
      const waiting = yield* Effect.forkScoped(locked(file, increment(file)))
      yield* Effect.sleep(100)
      assert.strictEqual(fs.readFileSync(file, "utf8"), "0")
      const old = Date.now() / 1000 - 600
      fs.utimesSync(`${file}.lock`, old, old)
      yield* Fiber.join(waiting)
      assert.strictEqual(fs.readFileSync(file, "utf8"), "1")
      assert.deepStrictEqual(fs.readdirSync(dir), ["number"])
    }
  }).pipe(Effect.scoped)
)

it.live(
  "who is interrupted while waiting takes nothing, and who is interrupted while holding gives it back",
  () =>
    Effect.gen(function* () {
      const file = path.join(yield* folder, "number")
      const holding = yield* Effect.forkScoped(locked(file, Effect.never))
      yield* Effect.promise(() => until("the lock", () => fs.existsSync(`${file}.lock`)))
      const waiting = yield* Effect.forkScoped(locked(file, Effect.never))
      yield* Fiber.interrupt(waiting)
      assert.isTrue(fs.existsSync(`${file}.lock`))
      yield* Fiber.interrupt(holding)
      assert.deepStrictEqual(fs.readdirSync(path.dirname(file)), [])
    }).pipe(Effect.scoped)
)
