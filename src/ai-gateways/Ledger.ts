/**
 * The books of AI gateways. A call reserves the most that it can cost before it is sent, and is settled once it has
 * ended. Spent and reserved together never exceed the month's budget, whatever number of processes make calls.
 *
 * - Calls of one gateway that come at the same moment share a statement, so that the one row they all pass is locked
 *   once for all of them. Gateways do not wait for each other.
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
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import type * as SqlError from "effect/sql/SqlError"
import { batched } from "#src/access/batching.ts"
import { answered } from "#src/engine/answered.ts"
import { periodic } from "#src/loops/periodic.ts"
import { Db, orUnavailable, repeatable, type Sql } from "#src/store/Db.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import { announce, type BudgetEvent, due } from "./announcement.ts"
import * as statements from "./ledger-statements.ts"
import { inWords } from "./money.ts"

/** The gateway's budget does not allow the call. Another may fit once calls have ended, or the month has. */
export class BudgetUsedUp extends Schema.TaggedError<BudgetUsedUp>()("BudgetUsedUp", {
  message: Schema.String
}) {}

/** The gateway was deleted. */
export class GatewayGone extends Schema.TaggedError<GatewayGone>()("GatewayGone", {
  message: Schema.String
}) {}

export interface Call {
  readonly orgId: string
  readonly projectId: string
  /** The resource's uid. */
  readonly gateway: string
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
const longestStatementMs = 5_000
/** How long whoever settles waits until it is written; it is tried again in the background. */
const settlePatience = "5 seconds"
const sweepBatch = 1_000

const backoff = Schedule.min([Schedule.exponential("50 millis"), Schedule.spaced("5 seconds")]).pipe(
  Schedule.jittered
)

type Question<A> = A & Pick<Call, "orgId" | "projectId" | "gateway">
type Verdict = "granted" | GatewayGone | BudgetUsedUp

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
      let open = 0

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
          open === 0 ? Effect.void : repeatable(statements.renew(engine, holder, leaseSeconds))
        )
      )

      const laneOf = ({ gateway }: { readonly gateway: string }) => gateway
      const reserving = yield* batched(
        ({ id }: Question<statements.Asked>) => id,
        (calls) => reserveAll(sql, holder, calls),
        laneOf
      )
      const settling = yield* batched(
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
        const writing = settling(settled).pipe(
          Effect.retry(backoff),
          Effect.ensuring(Effect.sync(() => open--)),
          // Whoever settles may not be interrupted; what goes on after it may.
          Effect.interruptible
        )
        const written = yield* FiberSet.run(background, writing)
        yield* Effect.timeoutOption(Fiber.await(written), settlePatience)
      })

      const acquire = Effect.fn("Ledger.reserve")(function* (call: Call) {
        const { orgId, projectId, gateway, keyId, model, mostNanoUsd } = call
        if (open >= mostOpen) {
          return yield* new StoreUnavailable({ message: `This process makes ${mostOpen} calls already` })
        }
        open++
        const of = { id: randomUUIDv7(), orgId, projectId, gateway }
        const notMade = { ...of, ...nothing }
        const verdict = yield* Effect.onError(
          reserving({ ...of, keyId, model, amount: whole(mostNanoUsd) }),
          // The store may have taken it all the same.
          () => FiberSet.run(background, write(notMade))
        )
        if (verdict !== "granted") {
          open--
          return yield* verdict
        }
        let atEnd = (): Question<statements.Settled> => notMade
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

const nothing: Omit<statements.Settled, "id"> = {
  cost: 0,
  inputTokens: 0,
  outputTokens: 0,
  estimated: false,
  status: null,
  upstream: null,
  latencyMs: null,
  made: false
}

/** All of one gateway. */
const reserveAll = Effect.fnUntraced(function* (
  sql: Sql,
  holder: string,
  calls: ReadonlyArray<Question<statements.Asked>>
) {
  const verdicts = new Map<string, Verdict>()
  const [first] = calls
  let left = calls
  while (first !== undefined && left.length > 0) {
    const asked = left
    const [now] = yield* withinTime(
      "reserve calls",
      statements.reserve(sql, first.orgId, first.gateway, holder, asked)
    )
    if (now === undefined) {
      for (const { id } of asked) verdicts.set(id, gone)
      break
    }
    if (now.month === null) {
      yield* withinTime("begin a month", statements.beginMonth(sql, first.orgId, first.gateway))
      continue
    }
    const granted = new Set(now.granted)
    const room = now.cap - now.spent - now.reserved - now.taken
    left = []
    let refused = false
    for (const call of asked) {
      if (granted.has(call.id)) verdicts.set(call.id, "granted")
      else if (call.amount <= room) left = [...left, call]
      else {
        verdicts.set(call.id, usedUp(now, now.month, call.amount))
        refused ||= call.amount > now.cap - now.spent
      }
    }
    if (refused) yield* tell(sql, first, `${now.month}-01`, due({ ...now, alerted: true }, true))
  }
  return calls.map(({ id }) => verdicts.get(id) ?? gone)
})

/** All of one gateway. */
const settleAll = Effect.fnUntraced(function* (sql: Sql, calls: ReadonlyArray<Question<statements.Settled>>) {
  const [first] = calls
  if (first === undefined) return []
  const months = yield* withinTime("settle calls", statements.settle(sql, first.orgId, first.gateway, calls))
  for (const month of months) yield* tell(sql, first, month.month, due(month, false))
  return calls.map(() => true)
})

const withinTime = <A>(does: string, statement: Effect.Effect<A, SqlError.SqlError>) =>
  answered(does, longestStatementMs)(repeatable(statement))

/** What is due stays due until it is told: a failure is made up for by the next call. */
const tell = (
  sql: Sql,
  of: Pick<Call, "orgId" | "projectId" | "gateway">,
  month: string,
  events: ReadonlyArray<BudgetEvent>
) =>
  Effect.forEach(
    events,
    (event) =>
      Effect.catch(withinTime("tell of a budget", announce(sql, { ...of, month }, event)), (error) =>
        Effect.logWarning("could not tell of a gateway's budget", error)
      ),
    { discard: true }
  )

const gone = new GatewayGone({ message: "The gateway was deleted" })

const usedUp = (now: statements.ReservedRow, month: string, asked: number) =>
  new BudgetUsedUp({
    message:
      `The gateway's budget of ${inWords(now.cap)} for ${month} does not allow this call: ${inWords(now.spent)} are spent, ` +
      `${inWords(now.reserved + now.taken)} are held for calls under way, and this one may cost ${inWords(asked)}`
  })

/** Settles what processes that died left behind. One round; several processes may do it at once. */
export const sweep = Effect.flatMap(Db, ({ engine: sql }) =>
  Effect.gen(function* () {
    for (;;) {
      const lost = yield* withinTime(
        "look for lost calls",
        statements.abandoned(sql, longestCallSeconds, leaseSeconds, sweepBatch)
      )
      for (const { orgId, projectId, gateway, ids, amounts } of lost) {
        yield* settleAll(
          sql,
          ids.map((id, index) => ({
            ...nothing,
            id,
            orgId,
            projectId,
            gateway,
            cost: amounts[index] ?? 0,
            estimated: true,
            made: true
          }))
        )
      }
      if (lost.reduce((sum, { ids }) => sum + ids.length, 0) < sweepBatch) return
    }
  })
)
