/**
 * Settles the calls of processes that died, at what they reserved.
 *
 * While the store is away no process can renew its lease, and live ones look as dead as the others when it is back. So
 * nothing is settled before the store has answered for as long as a lease without a break: by then whoever lives has
 * said so.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { periodic } from "#src/loops/periodic.ts"
import { Db, type Sql } from "#src/store/Db.ts"
import { leaseSeconds, longestCallSeconds } from "./Ledger.ts"
import { notMade, settleAll, withinTime } from "./ledger-batches.ts"
import * as statements from "./ledger-statements.ts"

const batch = 1_000
/**
 * Between two answers of the store: after more than that it may have been away in between, or this process asleep. Two
 * rounds come closer, and an absence that fits in leaves a live process time to renew.
 */
const longestGapMs = (leaseSeconds / 2) * 1_000

const settleLost = Effect.fnUntraced(function* (sql: Sql, { ids, amounts, ...of }: statements.Held) {
  yield* settleAll(
    sql,
    ids.map((id, index) => ({
      ...notMade,
      ...of,
      id,
      cost: amounts[index] ?? 0,
      estimated: true,
      made: true
    }))
  )
})

/** `goesOn` is asked after every answer of the store. Several processes may do it at once. */
const rounds = Effect.fnUntraced(function* (sql: Sql, goesOn: Effect.Effect<boolean>) {
  for (;;) {
    const lost = yield* withinTime(
      "look for lost calls",
      statements.abandoned(sql, longestCallSeconds, leaseSeconds, batch)
    )
    if (!(yield* goesOn)) return
    for (const calls of lost) {
      yield* settleLost(sql, calls)
      yield* goesOn
    }
    if (lost.reduce((sum, { ids }) => sum + ids.length, 0) < batch) return
  }
})

/** At once, whatever contact there was. */
export const sweep = Effect.flatMap(Db, ({ engine }) => rounds(engine, Effect.succeed(true)))

/** Makes a round that settles nothing before contact with the store has lasted. */
export const sweeper = Effect.map(Db, ({ engine }) => {
  let contact: { readonly sinceMs: number; readonly lastMs: number } | undefined
  /** The store answered just now. */
  const lasting = Effect.map(Clock.currentTimeMillis, (now) => {
    const gapMs = contact === undefined ? Number.POSITIVE_INFINITY : now - contact.lastMs
    const sinceMs = contact === undefined || gapMs < 0 || gapMs > longestGapMs ? now : contact.sinceMs
    contact = { sinceMs, lastMs: now }
    return now - sinceMs >= leaseSeconds * 1_000
  })
  return Effect.onError(rounds(engine, lasting), () =>
    Effect.sync(() => {
      contact = undefined
    })
  )
})

export const layer = Layer.effectDiscard(
  Effect.flatMap(sweeper, (round) => periodic({ does: "settle lost calls", every: "15 seconds" }, round))
)
