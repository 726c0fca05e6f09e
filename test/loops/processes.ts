/**
 * Processes of a leased loop on one table, for the tests of the loop and of its tables.
 *
 * Nothing sleeps: the loop has a clock of its own, which stands still until a test moves it, and `Table.advance` moves
 * what is stored.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Logger from "effect/Logger"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/testing/TestClock"
import { makeFairShare } from "#src/loops/fair-share.ts"
import { type LeasedLoop, leased } from "#src/loops/leased.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { Table } from "./table.ts"

export const lookMs = 30_000

/** Processes on one table, with what they have done. */
export const processesOn = Effect.fnUntraced(function* <Job, Result, E, R>(
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

export const hang = () => Effect.never
export const quickly = () => Effect.void
