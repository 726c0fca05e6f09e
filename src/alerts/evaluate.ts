/** The loop that evaluates alerts. Every process of the role `engine` runs it, and one of them has each turn. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import { periodic } from "#src/loops/periodic.ts"
import { Db, orUnavailable } from "#src/store/Db.ts"
import { evaluation } from "./evaluation.ts"

/** Between questions whose turn it is: a turn is taken no later than that after its time. */
const askEvery = "4 seconds"

const rounds = Metric.counter("svc_alert_rounds_total", {
  description: "Evaluations of all alerts by this process",
  incremental: true
})
const told = Metric.counter("svc_alert_told_total", {
  description: "Alerts that this process found to fire or to resolve, and told",
  incremental: true
})

/** One round, if it is somebody's turn. Not repeated: whether a lost one took place, the next one sees. */
export const evaluate = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const [row] = yield* orUnavailable(
    sql<{ readonly rounds: number; readonly moved: number; readonly told: number }>`${evaluation(sql)}`
  )
  const done = row ?? { rounds: 0, moved: 0, told: 0 }
  yield* Metric.update(rounds, done.rounds)
  yield* Metric.update(told, done.told)
  return done
})

export const layer = Layer.effectDiscard(
  periodic({ does: "evaluate alerts", every: askEvery, withinMs: 60_000 }, evaluate)
)
