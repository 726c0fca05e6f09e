import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import * as TestClock from "effect/testing/TestClock"
import { patienceMs } from "#src/engine/answered.ts"
import { periodic } from "#src/loops/periodic.ts"
import { removeInBatches } from "#src/loops/retention.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"

const away = Effect.fail(new StoreUnavailable({ message: "It is away" }))

describe("what is done now and then", () => {
  it.effect("goes on after failures, faults, interruptions and silence, and ends with its scope", () =>
    Effect.gen(function* () {
      const troubles = [away, Effect.die(new Error("a bug")), Effect.interrupt, Effect.never] as const
      let rounds = 0
      const round = Effect.suspend(
        (): Effect.Effect<void, StoreUnavailable> => troubles[rounds++] ?? Effect.void
      )
      yield* Effect.gen(function* () {
        yield* periodic({ does: "count", every: "10 seconds", withinMs: 1_000 }, round)
        yield* TestClock.adjust("1 minute")
        assert.isAtLeast(rounds, troubles.length + 1)
      }).pipe(Effect.scoped)
      const before = rounds
      yield* TestClock.adjust("1 minute")
      assert.strictEqual(rounds, before)
    }).pipe(Effect.provide(Logger.layer([])))
  )

  it.effect("removes rows batch by batch, whatever becomes of another rule", () =>
    Effect.gen(function* () {
      let rows = 25
      const rule = Effect.sync(() => {
        const removed = Math.min(10, rows)
        rows -= removed
        return Array.from({ length: removed })
      })
      // The end of a transaction is such a wait: nothing interrupts it.
      const silent = Effect.uninterruptible(Effect.never)
      const done = removeInBatches("remove", 10, [away, Effect.die("a bug"), silent, rule])
      const fiber = yield* Effect.forkChild(done)
      // How often it has to be looked at until the wait has begun does not matter.
      while (fiber.pollUnsafe() === undefined) yield* TestClock.adjust(patienceMs)
      assert.strictEqual(rows, 0)
    }).pipe(Effect.provide(Logger.layer([])))
  )
})
