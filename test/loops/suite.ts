/**
 * What every leased loop holds, whatever its jobs are. It runs against jobs in memory and against every table that the
 * program works on this way; only what running a job does is the test's.
 *
 * Nothing sleeps: the loop has a clock of its own, which stands still until a test moves it, and `Table.advance` moves
 * what is stored.
 */
import { assert, layer } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import type * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/testing/TestClock"
import { makeFairShare } from "#src/loops/fair-share.ts"
import { type LeasedLoop, leased } from "#src/loops/leased.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import type { Table } from "./table.ts"

const lookMs = 30_000

/** Processes on one table, with what they have done. */
const setting = Effect.fnUntraced(function* <Job, Result, E, R>(
  make: Effect.Effect<Table<Job, Result>, E, R>
) {
  type Port = LeasedLoop<Job, Result>
  const table = yield* make
  yield* table.clear
  const live = yield* Clock.Clock
  const clock = yield* TestClock.make()
  /** Ids in the order in which their runs began. */
  const begun: Array<string> = []
  const interrupted: Array<string> = []
  const calls = { claim: 0, settle: 0, renew: 0, nextIn: 0, release: 0 }
  let active = 0
  let mostActive = 0

  /** The port of a process, whose runs do what the test says; the store is asked in real time. */
  const portOf = (behave: (id: string) => Effect.Effect<void, unknown>, values: Partial<Port> = {}): Port => {
    // Whoever stops a process moves no clock meanwhile.
    const port = { ...table.port, lookMs, drainMs: 0, ...values }
    const ask =
      <Args extends ReadonlyArray<unknown>, A>(
        call: keyof typeof calls,
        self: (...args: Args) => Effect.Effect<A, StoreUnavailable>
      ) =>
      (...args: Args) =>
        Effect.tap(Effect.provideService(self(...args), Clock.Clock, live), () =>
          Effect.sync(() => {
            calls[call]++
          })
        )
    const { renew } = port
    return {
      ...port,
      claim: ask("claim", port.claim),
      settle: ask("settle", port.settle),
      ...(renew === undefined ? {} : { renew: ask("renew", renew) }),
      release: ask("release", port.release),
      nextIn: ask("nextIn", () => port.nextIn)(),
      ...(port.wake === undefined ? {} : { wake: Stream.provideService(port.wake, Clock.Clock, live) }),
      run: (job) =>
        Effect.suspend(() => {
          begun.push(port.idOf(job))
          mostActive = Math.max(mostActive, ++active)
          return behave(port.idOf(job))
        }).pipe(
          Effect.as(table.succeeded(job)),
          Effect.onInterrupt(() => Effect.sync(() => interrupted.push(port.idOf(job)))),
          Effect.ensuring(Effect.sync(() => active--))
        )
    }
  }
  /** One process, until the scope closes. */
  const start = (behave: (id: string) => Effect.Effect<void, unknown>, values?: Partial<Port>) =>
    leased(portOf(behave, values)).pipe(
      Effect.provideService(Clock.Clock, clock),
      Effect.provide(Logger.layer([]))
    )
  /** A process of its own, and its end. */
  const process = Effect.fnUntraced(function* (...args: Parameters<typeof start>) {
    const scope = yield* Scope.make()
    yield* Scope.provide(start(...args), scope)
    return { loop: scope, stop: Scope.close(scope, Exit.void) }
  })
  /** Waits until it holds; with `pass`, so many milliseconds pass for the loop and for the store at every look. */
  const until = (label: string, holds: Effect.Effect<boolean>, pass?: number) =>
    Effect.gen(function* () {
      for (let looks = 0; looks < 3_000; looks++) {
        if (yield* holds) return
        if (pass !== undefined) yield* Effect.andThen(clock.adjust(pass), table.advance(pass))
        yield* Effect.sleep(pass === undefined ? 5 : 20)
      }
      return yield* Effect.die(new Error(`it did not come to that: ${label}`))
    })
  const when = (label: string, holds: () => boolean, pass?: number) => until(label, Effect.sync(holds), pass)
  const done = (ids: ReadonlyArray<string>) =>
    Effect.map(Effect.forEach(ids, table.stored), (rows) => rows.every((row) => row.done))
  /** Another process claims what is due, and is never heard of again. */
  const claimElsewhere = table.port.claim({ most: 100, orgs: makeFairShare(1_000).rooms(), running: [] })
  const org = yield* table.makeOrganization
  return {
    ...table,
    org,
    clock,
    start,
    process,
    until,
    when,
    done,
    claimElsewhere,
    begun,
    interrupted,
    calls,
    active: () => active,
    mostActive: () => mostActive,
    idsOf: (jobs: ReadonlyArray<Job>) => jobs.map(table.port.idOf)
  }
})

const hang = () => Effect.never
const quickly = () => Effect.void

export const leasedLoopSuite = <Job, Result, E, R>(
  name: string,
  implementation: Layer.Layer<R, E>,
  make: Effect.Effect<Table<Job, Result>, unknown, R | Scope.Scope>
): void =>
  layer(implementation, { excludeTestServices: true })(`the leased loop ${name}`, (it) => {
    const world = Effect.suspend(() => setting(make))

    it.effect("runs each job in one process, and settles it once", () =>
      Effect.gen(function* () {
        const { org, add, start, until, done, begun, makeOrganization } = yield* world
        const orgs = [org, yield* makeOrganization]
        yield* start(quickly)
        yield* start(quickly)
        const ids = yield* Effect.forEach([...orgs, ...orgs, ...orgs, ...orgs], (one) => add(one))
        yield* until("all are done", done(ids), 100)
        assert.sameMembers(begun, ids)
      }).pipe(Effect.scoped)
    )

    it.effect("begins at once with what is announced", () =>
      Effect.gen(function* () {
        const { org, add, start, when, calls, begun } = yield* world
        yield* start(quickly)
        yield* when("it has looked in vain", () => calls.nextIn > 0)
        // The loop's clock stands still: no timer can have woken it.
        const id = yield* add(org)
        yield* when("it has begun", () => begun.includes(id))
      }).pipe(Effect.scoped)
    )

    it.effect("begins with what becomes due, without being told", () =>
      Effect.gen(function* () {
        const { org, add, start, when, calls, begun, advance, clock } = yield* world
        const id = yield* add(org, lookMs - 5_000)
        yield* start(quickly, { wake: Stream.never, lookMs: 100 * lookMs })
        yield* when("it has looked in vain", () => calls.nextIn > 0)
        assert.deepStrictEqual(begun, [])
        yield* advance(lookMs)
        yield* when("it has begun", () => begun.includes(id), 1_000)
        assert.isBelow(yield* clock.currentTimeMillis, 50 * lookMs)
      }).pipe(Effect.scoped)
    )

    it.effect("finds what a lost notification was about", () =>
      Effect.gen(function* () {
        const { org, add, start, when, calls, begun } = yield* world
        yield* start(quickly, { wake: Stream.never })
        yield* when("it has looked in vain", () => calls.nextIn > 0)
        const id = yield* add(org)
        yield* when("it has begun", () => begun.includes(id), 1_000)
      }).pipe(Effect.scoped)
    )

    it.effect(
      "takes over the job of a process that was killed when its lease has ended, and not before",
      () =>
        Effect.gen(function* () {
          const { org, add, start, when, until, done, claimElsewhere, idsOf, ...it } = yield* world
          const id = yield* add(org)
          const dead = yield* claimElsewhere
          assert.deepStrictEqual(idsOf(dead), [id])
          yield* it.advance(it.port.leaseMs / 2)
          assert.deepStrictEqual(yield* claimElsewhere, [])
          const gate = yield* Deferred.make<void>()
          yield* start(() => Deferred.await(gate))
          yield* when("it has looked in vain", () => it.calls.nextIn > 0)
          assert.deepStrictEqual(it.begun, [])
          yield* it.advance(it.port.leaseMs / 2 + 1)
          yield* when("it has begun", () => it.begun.includes(id), 1_000)
          // The one that was only slow writes nothing any more.
          yield* Effect.forEach(dead, (job) => it.port.settle(job, it.succeeded(job)))
          yield* it.port.release(dead)
          const held = yield* it.stored(id)
          assert.deepStrictEqual([held.leased, held.done], [true, false])
          yield* Deferred.succeed(gate, undefined)
          yield* until("it is done", done([id]))
          assert.deepStrictEqual(it.begun, [id])
        }).pipe(Effect.scoped)
    )

    it.effect("keeps a lease while its job runs; what loses it is interrupted and changes nothing", () =>
      Effect.gen(function* () {
        const { org, add, start, when, claimElsewhere, idsOf, clock, advance, ...it } = yield* world
        const { leaseMs, heartbeatMs = leaseMs / 4, renew } = it.port
        const id = yield* add(org)
        // A notification that comes late lets it look again: it must not take what the test means for somebody else.
        yield* start(hang, {
          claim: (room) => (it.begun.includes(id) ? Effect.succeed([]) : it.port.claim(room))
        })
        yield* when("it has begun", () => it.begun.includes(id))
        if (renew !== undefined) {
          for (let passed = 0; passed < 2 * leaseMs; passed += heartbeatMs) {
            const before = it.calls.renew
            yield* clock.adjust(heartbeatMs)
            yield* when("it was renewed", () => it.calls.renew > before)
            yield* advance(heartbeatMs)
          }
          assert.deepStrictEqual(yield* claimElsewhere, [])
          assert.deepStrictEqual([it.begun, it.interrupted], [[id], []])
        }
        yield* advance(leaseMs + 1)
        const other = yield* claimElsewhere
        assert.deepStrictEqual(idsOf(other), [id])
        const step = renew === undefined ? leaseMs : heartbeatMs
        yield* clock.adjust(step)
        yield* when("the first is interrupted", () => it.interrupted.length === 1)
        assert.isTrue((yield* it.stored(id)).leased)
        assert.strictEqual(it.calls.release, 0)
        yield* Effect.forEach(other, (job) => it.port.settle(job, it.succeeded(job)))
        assert.isTrue((yield* it.stored(id)).done)
        assert.strictEqual(it.calls.settle, 0)
      }).pipe(Effect.scoped)
    )

    it.effect("gives back what it is interrupted in, and another process begins with it at once", () =>
      Effect.gen(function* () {
        const { org, add, process, when, until, done, stored, ...it } = yield* world
        const ids = [yield* add(org), yield* add(org)]
        const first = yield* process(hang)
        yield* when("both run", () => it.active() === 2)
        yield* first.stop
        assert.sameMembers(it.interrupted, ids)
        for (const row of yield* Effect.forEach(ids, stored)) {
          assert.isFalse(row.done)
          assert.isAtMost(row.dueIn, 0)
        }
        yield* it.start(quickly)
        yield* until("they are done", done(ids), 100)
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

    it.effect("has no more jobs under way than it may", () =>
      Effect.gen(function* () {
        const { add, start, when, until, done, makeOrganization, ...it } = yield* world
        const gate = yield* Deferred.make<void>()
        const orgs = yield* Effect.forEach([1, 2, 3, 4], () => makeOrganization)
        yield* start(() => Deferred.await(gate), { atOnce: 3 })
        const ids = yield* Effect.forEach([...orgs, ...orgs], (one) => add(one))
        yield* when("all places are taken", () => it.active() === 3, 100)
        const before = it.calls.claim + it.calls.nextIn
        yield* Effect.forEach(Array.from({ length: 20 }), () => it.clock.adjust(500))
        assert.isAtLeast(it.calls.claim + it.calls.nextIn, before)
        yield* Deferred.succeed(gate, undefined)
        yield* until("all are done", done(ids), 100)
        assert.strictEqual(it.mostActive(), 3)
      }).pipe(Effect.scoped)
    )

    it.effect("leaves room beside an organization whose jobs do not end", () =>
      Effect.gen(function* () {
        const { org, add, start, when, port, makeOrganization, ...it } = yield* world
        if (port.orgOf === undefined || port.reserve === false) return
        const slow = yield* Effect.forEach(Array.from({ length: 12 }), () => add(org))
        yield* start((id) => (slow.includes(id) ? Effect.never : Effect.void), { atOnce: 8 })
        yield* when("it holds its share", () => it.active() >= 4, 100)
        const other = yield* makeOrganization
        const ids = [yield* add(other), yield* add(other), yield* add(other)]
        yield* it.until("the others are done", it.done(ids), 100)
        assert.isBelow(it.mostActive(), 8)
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
  })
