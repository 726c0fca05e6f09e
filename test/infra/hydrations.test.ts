import * as fs from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as TestClock from "effect/testing/TestClock"
import { type HydrationFault, Hydrations, type Run } from "#src/infra/postgres/Hydrations.ts"
import { type DatabaseWorld, databaseServices, databaseWorld, folderOf } from "#test/setup/databases.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { sleep } from "#test/setup/wait.ts"

/** A run that goes on until it is let go; `work` says that it is at something. */
const makeLong = Effect.fnUntraced(function* (world: DatabaseWorld, owner: string) {
  const uid = uuid()
  const gate = yield* Deferred.make<void, HydrationFault>()
  let run: Run | undefined
  fs.mkdirSync(folderOf(world, { uid }), { recursive: true })
  const hydrations = yield* Hydrations
  yield* hydrations.begin({ uid, fence: 1n }, { owner, first: false }, (given) =>
    Effect.gen(function* () {
      run = given
      yield* given.step("copy")
      fs.mkdirSync(given.data, { recursive: true })
      yield* Deferred.await(gate)
    })
  )
  return {
    uid,
    work: () => run?.active(),
    end: Deferred.succeed(gate, undefined),
    look: Effect.map(hydrations.inspect(uid), (now) => now!)
  }
})
type Long = Effect.Success<ReturnType<typeof makeLong>>

type Seen = Effect.Success<Long["look"]>

/**
 * Time passes until it is so far, little of it: the disk may take long to take down what is waited for. Whoever waits
 * for a file meanwhile goes to sleep later than the clock was moved.
 */
const reaches = Effect.fnUntraced(function* (long: Long, is: (now: Seen) => boolean) {
  for (let round = 0; round < 3_000; round++) {
    const now = yield* long.look
    if (is(now)) return now
    yield* Effect.promise(() => sleep(20))
    yield* TestClock.adjust("100 millis")
  }
  return yield* Effect.die(
    new Error(`never: ${JSON.stringify(yield* long.look, (_, value) => String(value))}`)
  )
})

/** Some minutes pass, and all of these have seen it. */
const minutesPass = Effect.fnUntraced(function* (minutes: number, all: ReadonlyArray<Long>) {
  yield* TestClock.adjust(`${minutes} minutes`)
  const now = yield* Clock.currentTimeMillis
  for (const one of all) yield* reaches(one, ({ heartbeatAt, alive }) => heartbeatAt > now || !alive)
})

it.effect(
  "whoever waits for a turn is not at fault for it, however long; without progress in its turn it is",
  () =>
    Effect.gen(function* () {
      const world = yield* databaseWorld
      yield* Effect.gen(function* () {
        const holders = [yield* makeLong(world, "a"), yield* makeLong(world, "a")]
        for (const one of holders) yield* reaches(one, ({ step }) => step === "copy")
        const late = yield* makeLong(world, "b")
        const all = [...holders, late]
        for (let round = 0; round < 5; round++) {
          yield* minutesPass(5, all)
          for (const one of holders) one.work()
        }
        const waiting = yield* late.look
        assert.deepStrictEqual(
          [waiting.state, waiting.step, waiting.alive, waiting.attempt],
          ["running", "queued", true, 1]
        )
        yield* holders[0]!.end
        yield* reaches(late, ({ step }) => step === "copy")
        assert.isTrue(fs.existsSync(path.join(folderOf(world, holders[0]!), "data")))
        // From its turn on it has the same time as anybody.
        yield* minutesPass(5, [holders[1]!, late])
        holders[1]!.work()
        assert.strictEqual((yield* late.look).state, "running")
        yield* minutesPass(6, [holders[1]!, late])
        const ended = yield* reaches(late, ({ alive }) => !alive)
        assert.deepStrictEqual([ended.state, ended.failure?.code], ["failed", "no_progress"])
        assert.strictEqual((yield* holders[1]!.look).state, "running")
      }).pipe(Effect.provide(Hydrations.layer.pipe(Layer.provide(databaseServices(world))), { local: true }))
    }).pipe(Effect.scoped),
  300_000
)
