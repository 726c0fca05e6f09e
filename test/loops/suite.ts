/**
 * What a table of jobs has to do for the leased loop that works on it, and what the loop itself does, whatever its jobs
 * are. Of each loop of the program the first is shown: its own statements can break that. The loop is the same for all, so
 * all of it is shown once over jobs in memory and once over a table in Postgres.
 */
import { assert, layer, type Vitest } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import type * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { hang, lookMs, processesOn, quickly } from "./processes.ts"
import { protocolTests } from "./protocol.ts"
import type { Table } from "./table.ts"

/** What a table can break. */
export const leasedLoopSuite = <Job, Result, E, R>(
  name: string,
  implementation: Layer.Layer<R, E>,
  make: Effect.Effect<Table<Job, Result>, unknown, R | Scope.Scope>
): void =>
  layer(implementation, { excludeTestServices: true })(`the leased loop ${name}`, (it) =>
    tableTests(it, make)
  )

/** The same, and what no table can break. */
export const wholeLeasedLoopSuite = <Job, Result, E, R>(
  name: string,
  implementation: Layer.Layer<R, E>,
  make: Effect.Effect<Table<Job, Result>, unknown, R | Scope.Scope>
): void =>
  layer(implementation, { excludeTestServices: true })(`the leased loop ${name}`, (it) => {
    tableTests(it, make)
    protocolTests(it, make)
  })

const tableTests = <Job, Result, R>(
  it: Vitest.MethodsNonLive<R>,
  make: Effect.Effect<Table<Job, Result>, unknown, R | Scope.Scope>
): void => {
  const world = Effect.suspend(() => processesOn(make))

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

  it.effect("takes over the job of a process that was killed when its lease has ended, and not before", () =>
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
}
