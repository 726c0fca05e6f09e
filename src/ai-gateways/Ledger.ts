/**
 * The books of AI gateways. A call reserves the most that it can cost before it is sent, and is settled once it has
 * ended. Spent and reserved together never exceed the month's budget, whatever number of processes make calls.
 *
 * - Calls of one gateway that begin or end at the same moment share a statement, so that the one row they all pass is
 *   locked once for all of them. Gateways do not wait for each other.
 * - A reservation belongs to a scope: whatever ends the call, closing the scope settles it. What a process that died
 *   left behind is settled by `sweep`, at what was reserved: the upstream may have charged all of it.
 * - A settlement that the store does not take at once is tried again until it does, or the process ends.
 * - A month is one of the calendar in UTC. What is reserved in a month is spent in it, whenever it ends.
 */
import { randomUUIDv7 } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as FiberSet from "effect/FiberSet"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import { batched } from "#src/access/batching.ts"
import { answered } from "#src/engine/answered.ts"
import { periodic } from "#src/loops/periodic.ts"
import { Db, orUnavailable, repeatable } from "#src/store/Db.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import {
  type BudgetUsedUp,
  type Entry,
  enterAll,
  extend,
  type GatewayGone,
  longestStatementMs,
  notMade,
  type OfGateway,
  type Question,
  settleAll,
  settling,
  withinTime
} from "./ledger-batches.ts"
import * as statements from "./ledger-statements.ts"

export interface Call extends OfGateway {
  /** Null: the token of an app. */
  readonly keyId: string | null
  readonly model: string
  /** The most that it can cost, in whole billionths of a US dollar. */
  readonly mostNanoUsd: number
}

export interface CallOutcome {
  readonly inputTokens: number
  readonly outputTokens: number
  /** The upstream did not say what was used. */
  readonly estimated: boolean
  /** In whole billionths of a US dollar. No more than was reserved is charged. */
  readonly costNanoUsd: number
  /** HTTP status of the answer; 499 where the client went away before there was one. */
  readonly status: number
  /** Name of the one that answered last, for people; null: none was asked. */
  readonly upstream: string | null
  readonly latencyMs: number
}

export interface Reservation {
  /** Of version 7. */
  readonly id: string
  /**
   * From here on the call may cost something: if the scope closes before `settle`, it is settled at what `ifCut` answers
   * then. Before, closing the scope gives everything back.
   */
  readonly sent: (ifCut: () => CallOutcome) => Effect.Effect<void>
  /**
   * Holds so many billionths of a US dollar more, for another try of the call whose first ones may cost something. They
   * count in the month in which the call was reserved. One at a time. What was held before stays held when it fails:
   * `StoreUnavailable` also where the call was taken for lost, and settled.
   */
  readonly extend: (moreNanoUsd: number) => Effect.Effect<void, BudgetUsedUp | GatewayGone | StoreUnavailable>
  /** Enters what the call came to. The first one counts. */
  readonly settle: (outcome: CallOutcome) => Effect.Effect<void>
}

/** A process that says nothing for so long is taken for dead. */
export const leaseSeconds = 60
/** No call goes on for longer. A reservation that is older was lost in some way, and is settled. */
export const longestCallSeconds = 3_600
const heartbeat = "15 seconds"
/** Reservations that a process holds at once. */
const mostOpen = 10_000
/** How long whoever settles waits until it is written; it is tried again in the background. */
const settlePatience = "5 seconds"
/** Reservations that are given back in one statement. */
const lateBatch = 1_000

const backoff = Schedule.min([Schedule.exponential("50 millis"), Schedule.spaced("5 seconds")]).pipe(
  Schedule.jittered
)

export class Ledger extends Context.Service<
  Ledger,
  {
    /** Holds the most that a call can cost until the scope closes or it is settled. */
    readonly reserve: (
      call: Call
    ) => Effect.Effect<Reservation, BudgetUsedUp | GatewayGone | StoreUnavailable, Scope.Scope>
  }
>()("svc/ai-gateways/Ledger") {
  static readonly layer = Layer.effect(
    Ledger,
    Effect.gen(function* () {
      const { api: sql, engine } = yield* Db
      const holder = randomUUIDv7()
      /** Calls that are reserved, or may be. */
      const open = new Set<string>()
      let hasReserved = false

      yield* Effect.addFinalizer(() =>
        Effect.ignore(
          answered(
            "end the lease on calls",
            longestStatementMs
          )(orUnavailable(statements.forget(engine, holder)))
        )
      )
      yield* periodic(
        { does: "say that calls go on", every: heartbeat, withinMs: 10_000 },
        Effect.suspend(() =>
          open.size === 0 ? Effect.void : repeatable(statements.renew(engine, holder, leaseSeconds))
        )
      )
      /**
       * A statement that nobody waits for any more may reserve a call long after it was given up and settled as not made.
       * What this process holds and does not know of is of that kind: an id is known before it is reserved.
       */
      yield* periodic(
        { does: "give back what was reserved too late", every: heartbeat, withinMs: 60_000 },
        Effect.gen(function* () {
          if (!hasReserved) return
          const late = yield* withinTime(
            "look for what was reserved too late",
            statements.heldBesides(engine, holder, [...open], lateBatch)
          )
          for (const { ids, ...of } of late) {
            const unknown = ids.filter((id) => !open.has(id))
            yield* settleAll(
              sql,
              unknown.map((id) => ({ ...notMade, ...of, id }))
            )
          }
        })
      )

      const laneOf = ({ gateway }: { readonly gateway: string }) => gateway
      const entering = yield* batched(
        (entry: Entry) => `${"settled" in entry} ${entry.id}`,
        (entries) => enterAll(sql, entries),
        laneOf
      )
      /** For settlements that failed once: what may be wrong with one of them holds up no reservation. */
      const settlingAgain = yield* batched(
        ({ id }: Question<statements.Settled>) => id,
        (calls) =>
          Effect.tapError(settleAll(sql, calls), (error) =>
            Effect.logWarning(`could not settle ${calls.length} calls; trying again`, error)
          ),
        laneOf
      )
      const background = yield* FiberSet.make()
      yield* Effect.addFinalizer(() =>
        FiberSet.awaitEmpty(background).pipe(Effect.timeoutOption(settlePatience))
      )

      /** Comes back when it is written, or after a while: it is tried again until it is. */
      const write = Effect.fnUntraced(function* (settled: Question<statements.Settled>) {
        const writing = entering(settling(settled)).pipe(
          Effect.catch(() => Effect.retry(settlingAgain(settled), backoff)),
          // Not when it is interrupted: what is not open is given back.
          Effect.tap(() => Effect.sync(() => open.delete(settled.id))),
          // Whoever settles may not be interrupted; what goes on after it may.
          Effect.interruptible
        )
        const written = yield* FiberSet.run(background, writing)
        yield* Effect.timeoutOption(Fiber.await(written), settlePatience)
      })

      const acquire = Effect.fnUntraced(function* (call: Call) {
        const { orgId, projectId, gateway, keyId, model, mostNanoUsd } = call
        if (open.size >= mostOpen) {
          return yield* new StoreUnavailable({ message: `This process makes ${mostOpen} calls already` })
        }
        const of = { id: randomUUIDv7(), orgId, projectId, gateway }
        open.add(of.id)
        hasReserved = true
        const givenBack = { ...of, ...notMade }
        const verdict = yield* Effect.onError(
          entering({ ...of, asked: { id: of.id, holder, keyId, model, amount: whole(mostNanoUsd) } }),
          // The store may have taken it all the same.
          () => FiberSet.run(background, write(givenBack))
        )
        if (typeof verdict !== "string") {
          open.delete(of.id)
          return yield* verdict
        }
        let atEnd = (): Question<statements.Settled> => givenBack
        let held = whole(mostNanoUsd)
        let over = false
        const end = (settled: () => Question<statements.Settled>) =>
          Effect.suspend(() => {
            if (over) return Effect.void
            over = true
            return write(settled())
          })
        const made = (outcome: CallOutcome) => ({ ...of, ...settledAs(outcome) })
        const reservation: Reservation = {
          id: of.id,
          sent: (ifCut) =>
            Effect.sync(() => {
              atEnd = () => made(ifCut())
            }),
          extend: (moreNanoUsd) => {
            const total = whole(held + whole(moreNanoUsd))
            return Effect.tap(extend(sql, of, of.id, total), () =>
              Effect.sync(() => {
                held = total
              })
            )
          },
          settle: (outcome) => Effect.uninterruptible(end(() => made(outcome)))
        }
        return { reservation, close: end(() => atEnd()) }
      })

      return Ledger.of({
        reserve: (call) =>
          // In one step that nothing interrupts: there is no moment at which it is held and nobody gives it back.
          Effect.map(
            Effect.acquireRelease(acquire(call), ({ close }) => close),
            ({ reservation }) => reservation
          )
      })
    })
  )
}

/** Amounts and counts as the store takes them, whatever an upstream said. */
const whole = (amount: number): number =>
  amount > 0 ? Math.min(Math.ceil(amount), Number.MAX_SAFE_INTEGER) : 0
const mostTokens = 1_000_000_000
const tokens = (count: number): number => Math.min(whole(count), mostTokens)

const settledAs = (outcome: CallOutcome): Omit<statements.Settled, "id"> => ({
  cost: whole(outcome.costNanoUsd),
  inputTokens: tokens(outcome.inputTokens),
  outputTokens: tokens(outcome.outputTokens),
  estimated: outcome.estimated,
  status: outcome.status,
  upstream: outcome.upstream,
  latencyMs: Math.min(whole(outcome.latencyMs), longestCallSeconds * 1_000),
  made: true
})
