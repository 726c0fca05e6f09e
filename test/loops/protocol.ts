/** What the leased loop does, whatever its jobs are and wherever they are stored. */
import { assert, type Vitest } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import { hang, processesOn, quickly } from "./processes.ts"
import type { Table } from "./table.ts"

export const protocolTests = <Job, Result, R>(
  it: Vitest.MethodsNonLive<R>,
  make: Effect.Effect<Table<Job, Result>, unknown, R | Scope.Scope>
): void => {
  const world = Effect.suspend(() => processesOn(make))

  it.effect("finds what a lost notification was about", () =>
    Effect.gen(function* () {
      const { org, add, start, when, calls, begun } = yield* world
      yield* start(quickly, { wake: Stream.never })
      yield* when("it has looked in vain", () => calls.nextIn > 0)
      const id = yield* add(org)
      yield* when("it has begun", () => begun.includes(id), 1_000)
    }).pipe(Effect.scoped)
  )

  it.effect("gives back what it claims while it is stopped", () =>
    Effect.gen(function* () {
      const { org, add, process, when, stored, port } = yield* world
      const id = yield* add(org)
      const answer = yield* Deferred.make<void>()
      let leased = 0
      const first = yield* process(hang, {
        claim: (room) =>
          Effect.tap(port.claim(room), (jobs) => {
            leased += jobs.length
            return Deferred.await(answer)
          })
      })
      yield* when("the store has leased it", () => leased === 1)
      const stopping = yield* Effect.forkChild(first.stop)
      yield* Effect.yieldNow
      yield* Deferred.succeed(answer, undefined)
      yield* Fiber.join(stopping)
      const row = yield* stored(id)
      assert.isFalse(row.done)
      assert.isAtMost(row.dueIn, 0)
    }).pipe(Effect.scoped)
  )

  it.effect("stores what is over when it is stopped", () =>
    Effect.gen(function* () {
      const { org, add, process, when, done, port } = yield* world
      const id = yield* add(org)
      const ready = yield* Deferred.make<void>()
      let asked = false
      const first = yield* process(quickly, {
        settle: (job, result) =>
          Effect.suspend(() => {
            asked = true
            return Effect.andThen(Deferred.await(ready), port.settle(job, result))
          })
      })
      yield* when("the store is asked", () => asked)
      const stopping = yield* Effect.forkChild(first.stop)
      yield* Effect.yieldNow
      yield* Deferred.succeed(ready, undefined)
      yield* Fiber.join(stopping)
      assert.isTrue(yield* done([id]))
    }).pipe(Effect.scoped)
  )

  it.effect("stops although the store is silent", () =>
    Effect.gen(function* () {
      const { process, when, clock } = yield* world
      let asked = false
      const silent = Effect.suspend(() => {
        asked = true
        return Effect.never
      })
      const first = yield* process(hang, { claim: () => silent })
      yield* when("the store is asked", () => asked)
      const stopping = yield* Effect.forkChild(first.stop)
      let stopped = false
      stopping.addObserver(() => {
        stopped = true
      })
      yield* when("it has stopped", () => stopped, 1_000)
      assert.isBelow(yield* clock.currentTimeMillis, 60_000)
    }).pipe(Effect.scoped)
  )

  it.effect("looks once a second, and no more often, for what is due and finds no room", () =>
    Effect.gen(function* () {
      const { org, add, start, when, calls, active, clock, port } = yield* world
      if (port.orgOf === undefined || port.reserve === false) return
      yield* Effect.forEach(Array.from({ length: 6 }), () => add(org))
      yield* start(hang, { atOnce: 8, mostOfOneOrg: 2, wake: Stream.never })
      yield* when("it has no room", () => active() === 2, 100)
      const before = calls.claim + calls.nextIn
      const [seconds, step] = [10, 100]
      for (let passed = 0; passed < seconds * 1_000; passed += step)
        yield* Effect.andThen(clock.adjust(step), Effect.sleep(1))
      // Each look asks twice, and one may have been on its way.
      assert.isAtMost(calls.claim + calls.nextIn, before + 2 * (seconds + 2))
      const last = calls.claim
      yield* when("it looks again", () => calls.claim > last, 1_000)
    }).pipe(Effect.scoped)
  )

  const faults = {
    "that is away": Effect.fail(new StoreUnavailable({ message: "It is away" })),
    "that never answers": Effect.never,
    "whose driver has a fault": Effect.die(new Error("a bug")),
    "that interrupts": Effect.interrupt
  }
  for (const call of ["claim", "settle", "renew", "nextIn"] as const) {
    for (const [kind, fault] of Object.entries(faults)) {
      it.effect(`goes on after a store ${kind} in ${call}`, () =>
        Effect.gen(function* () {
          const { org, add, start, when, until, done, port } = yield* world
          if (call === "renew" && port.renew === undefined) return
          let struck = 0
          const strike = <A>(name: string, self: Effect.Effect<A, StoreUnavailable>) =>
            Effect.suspend(() => (name === call && struck++ < 2 ? fault : self))
          const { renew } = port
          // Renewed is what runs.
          const gate = yield* Deferred.make<void>()
          if (call !== "renew") yield* Deferred.succeed(gate, undefined)
          const first = yield* add(org)
          yield* start(() => Deferred.await(gate), {
            claim: (room) => strike("claim", port.claim(room)),
            settle: (job, result) => strike("settle", port.settle(job, result)),
            ...(renew === undefined ? {} : { renew: (jobs) => strike("renew", renew(jobs)) }),
            nextIn: strike("nextIn", port.nextIn)
          })
          yield* when("the fault has struck", () => struck > 0, 2_000)
          yield* Deferred.succeed(gate, undefined)
          const second = yield* add(org)
          yield* until("both are done", done([first, second]), 2_000)
        }).pipe(Effect.scoped)
      )
    }
  }
}
