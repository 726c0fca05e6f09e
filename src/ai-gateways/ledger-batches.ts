/**
 * What the ledger does for many calls of one gateway at once: looks until each has its answer, with an end to every wait,
 * and tells webhooks of the budget.
 */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type * as SqlError from "effect/sql/SqlError"
import { answered } from "#src/engine/answered.ts"
import { repeatable, type Sql } from "#src/store/Db.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import { announce, type BudgetEvent, due } from "./announcement.ts"
import * as statements from "./ledger-statements.ts"
import { inWords } from "./money.ts"

/** The gateway's budget does not allow the call, or its project's. Another may fit once calls have ended, or the month has. */
export class BudgetUsedUp extends Schema.TaggedError<BudgetUsedUp>()("BudgetUsedUp", {
  message: Schema.String
}) {}

/** The gateway was deleted. */
export class GatewayGone extends Schema.TaggedError<GatewayGone>()("GatewayGone", {
  message: Schema.String
}) {}

export interface OfGateway {
  readonly orgId: string
  readonly projectId: string
  /** The resource's uid. */
  readonly gateway: string
}

export type Question<A> = A & OfGateway
type Verdict = "granted" | GatewayGone | BudgetUsedUp

export const longestStatementMs = 5_000

/** Calls of one gateway that are to be reserved, or settled. */
export type Entry = Question<{ readonly id: string } & (Reserve | Settle)>
interface Reserve {
  readonly asked: statements.Asked
}
interface Settle {
  readonly settled: statements.Settled
}
export type Answer = Verdict | "settled"

/** All of one gateway. */
export const enterAll = Effect.fnUntraced(function* (sql: Sql, entries: ReadonlyArray<Entry>) {
  const verdicts = new Map<string, Verdict>()
  const [first] = entries
  let settled = entries.flatMap((entry) => ("settled" in entry ? [entry.settled] : []))
  let left = entries.flatMap((entry) => ("asked" in entry ? [entry.asked] : []))
  while (first !== undefined && settled.length + left.length > 0) {
    const asked = left
    let tries = 0
    const months = yield* withinTime(
      "reserve and settle calls",
      Effect.suspend(() => {
        tries++
        return statements.enter(sql, first.orgId, first.gateway, settled, asked)
      })
    )
    settled = []
    left = []
    for (const now of months) {
      if (now.settled && now.month !== null) yield* tell(sql, first, now.month, due(now, false))
    }
    if (asked.length === 0) break
    if (months[0]?.live !== true) {
      for (const { id } of asked) verdicts.set(id, gone)
      break
    }
    if (months[0].stopped) {
      const granted = new Set(months[0].granted)
      for (const { id } of asked) verdicts.set(id, granted.has(id) ? "granted" : stopped)
      break
    }
    const now = months.find(({ current }) => current)
    if (now === undefined || now.month === null) {
      yield* withinTime("begin a month", statements.beginMonth(sql, first.orgId, first.gateway))
      left = asked
      continue
    }
    const granted = new Set(now.granted)
    const room = now.cap - now.spent - now.reserved - now.taken
    let refused = false
    for (const call of asked) {
      if (granted.has(call.id)) verdicts.set(call.id, "granted")
      // A try whose answer was lost may have taken it after this one began, and be what leaves no room.
      else if (call.amount <= room || tries > 1) left.push(call)
      else {
        verdicts.set(call.id, usedUp(now, now.month.slice(0, 7), now.reserved + now.taken, call.amount))
        refused ||= call.amount > now.cap - now.spent
      }
    }
    if (refused) yield* tell(sql, first, now.month, due({ ...now, alerted: true }, true))
  }
  return entries.map(
    (entry): Answer => ("settled" in entry ? "settled" : (verdicts.get(entry.asked.id) ?? gone))
  )
})

export const notMade: Omit<statements.Settled, "id"> = {
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
export const settleAll = (sql: Sql, calls: ReadonlyArray<Question<statements.Settled>>) =>
  enterAll(sql, calls.map(settling))

/** The entry that settles a call. */
export const settling = (settled: Question<statements.Settled>): Entry => ({
  id: settled.id,
  orgId: settled.orgId,
  projectId: settled.projectId,
  gateway: settled.gateway,
  settled
})

/** Holds `total` for a call that holds less, in the month in which it was reserved. */
export const extend = Effect.fnUntraced(function* (sql: Sql, of: OfGateway, id: string, total: number) {
  const [now] = yield* withinTime(
    "hold more for a call",
    statements.extend(sql, of.orgId, of.gateway, id, total)
  )
  if (now === undefined) return yield* gone
  if (now.month === null) {
    return yield* new StoreUnavailable({
      message: "This process was silent for so long that its call was settled"
    })
  }
  if (now.granted) return
  if (total > now.cap - now.spent) {
    yield* tell(sql, of, `${now.month}-01`, due({ ...now, alerted: true }, true))
  }
  return yield* usedUp(now, now.month, now.reserved, total - now.held)
})

export const withinTime = <A>(does: string, statement: Effect.Effect<A, SqlError.SqlError>) =>
  answered(does, longestStatementMs)(repeatable(statement))

/** What is due stays due until it is told: a failure is made up for by the next call. */
const tell = (
  sql: Sql,
  { orgId, projectId, gateway }: OfGateway,
  month: string,
  events: ReadonlyArray<BudgetEvent>
) =>
  Effect.forEach(
    events,
    (event) =>
      Effect.catch(
        withinTime("tell of a budget", announce(sql, { orgId, projectId, gateway, month }, event)),
        (error) => Effect.logWarning("could not tell of a gateway's budget", error)
      ),
    { discard: true }
  )

const gone = new GatewayGone({ message: "The gateway was deleted" })
const stopped = new BudgetUsedUp({
  message:
    "The project's budget for this month is used up, and it stops what costs more: raise its cap, or wait for the next month"
})

const usedUp = (
  { cap, spent }: { readonly cap: number; readonly spent: number },
  month: string,
  held: number,
  asked: number
) =>
  new BudgetUsedUp({
    message:
      `The gateway's budget of ${inWords(cap)} for ${month} does not allow this call: ${inWords(spent)} are spent, ` +
      `${inWords(held)} are held for calls under way, and this one may cost ${inWords(asked)}`
  })
