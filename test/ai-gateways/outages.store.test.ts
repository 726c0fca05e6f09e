/** The ledger while the store is slow, away, or answers nobody. */
import { assert, layer } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import * as TestClock from "effect/testing/TestClock"
import { Ledger, leaseSeconds } from "#src/ai-gateways/Ledger.ts"
import { sweeper } from "#src/ai-gateways/sweep.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import { withinOneMonth } from "#test/budgets/periods.ts"
import { migratedDatabase } from "#test/setup/database.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { postgresProxy } from "#test/setup/postgres-proxy.ts"
import { eventually } from "#test/setup/wait.ts"
import { booksOf, callOf, type Gateway, newGateway, outcomeOf, usd } from "./world.ts"

class Store extends Context.Service<Store, Redacted.Redacted>()("test/StoreUrl") {}
const world = Layer.unwrap(
  Effect.map(migratedDatabase, (url) =>
    Resources.layer.pipe(
      Layer.provide(KeyRing.layerEphemeral),
      Layer.provideMerge(Layer.merge(Db.layer({ url }), Layer.succeed(Store, url))),
      Layer.provide(withinOneMonth)
    )
  )
)

/** A ledger with a clock and connections of its own. */
const ledgerOnWay = Effect.gen(function* () {
  const clock = yield* TestClock.make()
  const proxy = yield* postgresProxy(yield* Store)
  // The store is asked in real time.
  const db = Context.get(yield* Layer.build(Layer.fresh(Db.layer({ url: proxy.url }))), Db)
  const context = yield* Layer.build(Layer.fresh(Ledger.layer)).pipe(
    Effect.provideService(Db, db),
    Effect.provideService(Clock.Clock, clock)
  )
  return { clock, proxy, ledger: Context.get(context, Ledger) }
})

/** Keeps everybody off the month's row until `release`. */
const lockMonth = Effect.fnUntraced(function* ({ gateway }: Gateway) {
  const { engine: sql } = yield* Db
  const [locked, released] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
  const holding = yield* Effect.forkScoped(
    sql.withTransaction(
      Effect.gen(function* () {
        yield* sql`select from ai_gateway_month where gateway_uid = ${gateway}::uuid for update`
        yield* Deferred.succeed(locked, undefined)
        yield* Deferred.await(released)
      })
    )
  )
  yield* Deferred.await(locked)
  return { release: Effect.andThen(Deferred.succeed(released, undefined), Fiber.join(holding)) }
})

/** Statements that wait for a lock in this database. */
const waiting = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  // What another role waits for is only told by its locks.
  const rows = yield* sql`select distinct a.pid from pg_stat_activity a join pg_locks l on l.pid = a.pid
    where a.datname = current_database() and not l.granted`
  return rows.length
})
const waitingAre = (count: number) =>
  eventually(`${count} statements wait`, waiting, (waiting) => waiting === count)

layer(world, { excludeTestServices: true, timeout: "25 seconds" })("the ledger and its store", (it) => {
  it.effect("what the store reserves after the call was given up is given back", () =>
    Effect.gen(function* () {
      const { clock, proxy, ledger } = yield* ledgerOnWay
      const gateway = yield* newGateway(1)
      yield* Effect.scoped(ledger.reserve(callOf(gateway, 1)))
      const kept = yield* ledger.reserve(callOf(gateway, 0.2 * usd))
      const settledAlready = yield* ledger.reserve(callOf(gateway, 0))
      const { engine: sql } = yield* Db
      yield* sql`delete from ai_gateway_reservation where id = ${settledAlready.id}::uuid`
      const month = yield* lockMonth(gateway)
      const refused = yield* Effect.forkChild(
        Effect.flip(Effect.scoped(ledger.reserve(callOf(gateway, 0.5 * usd))))
      )
      yield* waitingAre(1)
      const whileMoving = Effect.fnUntraced(function* <A, E>(fiber: Fiber.Fiber<A, E>) {
        yield* eventually(
          "it ends",
          Effect.map(clock.adjust("50 millis"), () => fiber.pollUnsafe() !== undefined)
        )
        return yield* Fiber.join(fiber)
      })
      yield* proxy.goAway
      assert.strictEqual((yield* whileMoving(refused))._tag, "StoreUnavailable")
      yield* proxy.comeBack
      // Comes after the settlement of the call that was given up, and like it needs no lock.
      yield* whileMoving(yield* Effect.forkChild(settledAlready.settle(outcomeOf(1))))
      yield* month.release
      yield* waitingAre(0)
      yield* eventually(
        "nothing but the call under way is held",
        Effect.andThen(clock.adjust("15 seconds"), booksOf(gateway)),
        ({ reserved }) => reserved === 0.2 * usd
      )
      yield* kept.settle(outcomeOf(7))
      assert.deepInclude(yield* booksOf(gateway), { spent: 7, reserved: 0, requests: 1 })
    }).pipe(Effect.scoped)
  )

  it.effect("a call that its own first try keeps from fitting is granted", () =>
    Effect.gen(function* () {
      const { clock, proxy, ledger } = yield* ledgerOnWay
      const gateway = yield* newGateway(1)
      yield* Effect.scoped(ledger.reserve(callOf(gateway, 1)))
      const month = yield* lockMonth(gateway)
      const reserving = yield* Effect.forkChild(ledger.reserve(callOf(gateway, 0.9 * usd)))
      yield* waitingAre(1)
      yield* proxy.goAway
      yield* proxy.comeBack
      yield* eventually(
        "the second try waits as well",
        Effect.andThen(clock.adjust("50 millis"), waiting),
        (count) => count === 2
      )
      yield* month.release
      const { settle } = yield* Fiber.join(reserving)
      assert.deepInclude(yield* booksOf(gateway), { spent: 0, reserved: 0.9 * usd })
      yield* settle(outcomeOf(7))
      assert.deepInclude(yield* booksOf(gateway), { spent: 7, reserved: 0, requests: 1 })
    }).pipe(Effect.scoped)
  )

  /** Holds 300 for a process whose lease has ended, and sweeps as another one does. */
  const expired = Effect.gen(function* () {
    const { api, engine: sql } = yield* Db
    const gateway = yield* newGateway(1)
    const holder = uuid()
    const { reserve } = Context.get(yield* Layer.build(Layer.fresh(Ledger.layer)), Ledger)
    const { id } = yield* reserve(callOf(gateway, 300))
    yield* sql`update ai_gateway_reservation
      set holder = ${holder}::uuid, reserved_at = reserved_at - interval '10 minutes' where id = ${id}::uuid`
    const renewed = (seconds: number) => sql`insert into ai_gateway_holder
      values (${holder}::uuid, now() + make_interval(secs => ${seconds}::int))
      on conflict (id) do update set alive_until = excluded.alive_until`
    yield* renewed(-30)
    const clock = yield* TestClock.make()
    const proxy = yield* postgresProxy(yield* Store)
    const away = Context.get(yield* Layer.build(Layer.fresh(Db.layer({ url: proxy.url }))), Db)
    const round = yield* Effect.provideService(sweeper, Db, Db.of({ ...away, api }))
    /** A round so much later. What waits in it, to try again, does so for moments. */
    const sweeps = Effect.fnUntraced(function* (seconds: number) {
      yield* clock.adjust(`${seconds} seconds`)
      const sweeping = yield* Effect.forkChild(Effect.provideService(round, Clock.Clock, clock))
      yield* eventually(
        "the round ends",
        Effect.map(clock.adjust("100 millis"), () => sweeping.pollUnsafe() !== undefined)
      )
      return yield* Fiber.join(sweeping)
    })
    return { gateway, renewed, proxy, sweeps }
  })
  const step = 15
  const almost = Array.from({ length: leaseSeconds / step - 1 }, () => step)

  it.effect("calls are taken for lost once the store has answered for as long as a lease", () =>
    Effect.gen(function* () {
      const { gateway, sweeps } = yield* expired
      yield* sweeps(0)
      yield* Effect.forEach(almost, sweeps)
      assert.deepInclude(yield* booksOf(gateway), { spent: 0, reserved: 300 })
      yield* sweeps(step)
      assert.deepInclude(yield* booksOf(gateway), { spent: 300, reserved: 0 })
    }).pipe(Effect.scoped)
  )

  it.effect("an absence of the store, or of the process, gives the living a lease's time to say so", () =>
    Effect.gen(function* () {
      const { gateway, renewed, proxy, sweeps } = yield* expired
      yield* sweeps(0)
      yield* Effect.forEach(almost, sweeps)
      yield* proxy.goAway
      assert.instanceOf(yield* Effect.flip(sweeps(step)), StoreUnavailable)
      yield* proxy.comeBack
      yield* sweeps(0)
      yield* Effect.forEach(almost, sweeps)
      // Asleep.
      yield* sweeps(10 * leaseSeconds)
      yield* Effect.forEach(almost, sweeps)
      assert.deepInclude(yield* booksOf(gateway), { spent: 0, reserved: 300 })
      yield* renewed(30)
      yield* sweeps(step)
      assert.deepInclude(yield* booksOf(gateway), { spent: 0, reserved: 300 })
    }).pipe(Effect.scoped)
  )
})
