/** The loop that evaluates alerts. Every process of the role `engine` runs it, and one of them has each turn. */
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import * as SqlError from "effect/sql/SqlError"
import { whenAnnounced } from "#src/loops/when-announced.ts"
import { Db, isTransient, orUnavailable, repeatable, saidBy, transaction } from "#src/store/Db.ts"
import { dueTurns, evaluation, nextTurn, putOff } from "./evaluation.ts"

/** At least between questions whose turn it is, of several organizations: a turn is taken no later than that after its time. */
const shortestMs = 4_000
/** Where nobody has alerts that is announced, or a notification was lost. */
const longestMs = 15_000
/** Organizations that are looked up at once. What is left is due at the next question. */
const mostTurns = 1_000
/** Organizations that one statement evaluates, and statements at once: an evaluation keeps a processor of the store busy. */
const batch = 10
const atOnce = 2
/** A statement takes a fraction of a second. One that takes longer is of more than the store can do, and is given up. */
const withinSeconds = 10

const rounds = Metric.counter("svc_alert_rounds_total", {
  description: "Evaluations of the alerts of an organization by this process",
  incremental: true
})
const failures = Metric.counter("svc_alert_failures_total", {
  description: "Evaluations of the alerts of an organization that failed and were put off for a minute",
  incremental: true
})
const told = Metric.counter("svc_alert_told_total", {
  description: "Alerts that this process found to fire or to resolve, and told",
  incremental: true
})

/** What was done: turns taken, alerts that changed, and alerts that were told. */
interface Done {
  readonly rounds: number
  readonly moved: number
  readonly told: number
}
const nothing: Done = { rounds: 0, moved: 0, told: 0 }
const sum = (all: ReadonlyArray<Done>): Done =>
  all.reduce(
    (left, right) => ({
      rounds: left.rounds + right.rounds,
      moved: left.moved + right.moved,
      told: left.told + right.told
    }),
    nothing
  )

/** One statement, of all of these organizations. Not repeated: whether a lost one took place, the next one sees. */
const together = Effect.fnUntraced(function* (organizations: ReadonlyArray<string>) {
  const { engine: sql } = yield* Db
  const [row] = yield* transaction(
    sql,
    Effect.andThen(
      sql`set local statement_timeout = ${sql.literal(`'${withinSeconds}s'`)}`,
      sql<Done>`${evaluation(sql, organizations)}`
    )
  )
  return row ?? nothing
})

/** A statement that fails because of what it evaluates, and would fail again. */
const isOfItsContent = (error: SqlError.SqlError) =>
  error.reason._tag === "StatementTimeoutError" || !isTransient(error)

/** Nothing of one organization keeps the others from being evaluated. */
const alone = Effect.fnUntraced(function* (orgId: string) {
  const { engine: sql } = yield* Db
  return yield* Effect.catchIf(
    together([orgId]),
    (error) => SqlError.isSqlError(error) && isOfItsContent(error),
    (error) =>
      Effect.gen(function* () {
        yield* Effect.logWarning(
          `could not evaluate the alerts of the organization ${orgId}, which is put off: ${saidBy(error)}`
        )
        yield* Metric.update(failures, 1)
        yield* putOff(sql, orgId)
        return nothing
      })
  )
})

/** Whatever is due. */
export const evaluate = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const due = yield* repeatable(dueTurns(sql, mostTurns))
  const [usual, apart] = [due.filter((turn) => !turn.alone), due.filter((turn) => turn.alone)]
  const inBatches = Effect.forEach(
    Arr.chunksOf(usual, batch),
    (turns) => {
      const organizations = turns.map(({ orgId }) => orgId)
      return Effect.catchIf(
        together(organizations),
        (error) => SqlError.isSqlError(error) && isOfItsContent(error),
        () => Effect.map(Effect.forEach(organizations, alone), sum)
      )
    },
    { concurrency: atOnce }
  )
  const oneByOne = Effect.forEach(apart, ({ orgId }) => alone(orgId))
  const all = sum((yield* orUnavailable(Effect.all([inBatches, oneByOne]))).flat())
  yield* Metric.update(rounds, all.rounds)
  yield* Metric.update(told, all.told)
  return all
})

const round = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  yield* evaluate
  const [row] = yield* repeatable(nextTurn(sql))
  return row?.next ?? longestMs
})

export const layer = Layer.effectDiscard(
  whenAnnounced(
    {
      does: "evaluate alerts",
      channel: "svc_alert_turn",
      rest: (next) => Math.min(longestMs, Math.max(shortestMs, next))
    },
    round
  )
)
