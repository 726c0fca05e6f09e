import { assert, it } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import { leased } from "#src/loops/leased.ts"
import { memoryTable } from "./memory-table.ts"
import { wholeLeasedLoopSuite } from "./suite.ts"

wholeLeasedLoopSuite("over jobs in memory", Layer.empty, memoryTable)

it.effect(
  "a process that stops lets its jobs end for a while, under their leases, and begins with no other",
  () =>
    Effect.gen(function* () {
      const { port, makeOrganization, add, stored } = yield* memoryTable
      const scope = yield* Scope.make()
      const begun = yield* Deferred.make<void>()
      let renewals = 0
      const loop = {
        ...port,
        drainMs: 60_000,
        heartbeatMs: 1_000,
        renew: (jobs: Parameters<NonNullable<typeof port.renew>>[0]) => {
          renewals++
          return port.renew!(jobs)
        },
        run: () =>
          Effect.andThen(
            Deferred.succeed(begun, undefined),
            Effect.as(Effect.sleep("10 seconds"), "done" as const)
          )
      }
      yield* Scope.provide(leased(loop), scope)
      const org = yield* makeOrganization
      const id = yield* add(org)
      yield* Deferred.await(begun)
      const stopping = yield* Effect.forkChild(Scope.close(scope, Exit.void))
      yield* TestClock.adjust("5 seconds")
      const late = yield* add(org)
      const before = renewals
      yield* TestClock.adjust("2 seconds")
      assert.isAbove(renewals, before)
      yield* TestClock.adjust("10 seconds")
      yield* Fiber.join(stopping)
      assert.isTrue((yield* stored(id)).done)
      const other = yield* stored(late)
      assert.deepStrictEqual([other.done, other.leased], [false, false])
    }).pipe(Effect.scoped)
)

it.effect("a job that somebody else has ended can be stopped, and nothing of it is stored", () =>
  Effect.gen(function* () {
    const { port, makeOrganization, add } = yield* memoryTable
    const begun = yield* Deferred.make<void>()
    const interrupted = yield* Deferred.make<void>()
    const written: Array<string> = []
    const loop = yield* leased({
      ...port,
      run: () =>
        Effect.andThen(Deferred.succeed(begun, undefined), Effect.never).pipe(
          Effect.onInterrupt(() => Deferred.succeed(interrupted, undefined))
        ),
      settle: ({ id }) => Effect.sync(() => void written.push(id)),
      release: (jobs) => Effect.sync(() => void written.push(...jobs.map(({ id }) => id)))
    })
    const id = yield* add(yield* makeOrganization)
    yield* Deferred.await(begun)
    yield* loop.stop(id)
    yield* Deferred.await(interrupted)
    assert.deepStrictEqual(written, [])
  }).pipe(Effect.scoped)
)
