/**
 * The loops that make cron jobs run: one plans times ahead, one begins what is due, one skips what is too late. Any number
 * of processes may run them.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import * as Queue from "effect/Queue"
import * as Stream from "effect/Stream"
import { batched } from "#src/access/batching.ts"
import { answered } from "#src/engine/answered.ts"
import { supervise } from "#src/engine/supervise.ts"
import { type LeasedLoop, leased } from "#src/loops/leased.ts"
import { periodic } from "#src/loops/periodic.ts"
import { Db } from "#src/store/Db.ts"
import { type Claimed, DueRuns, type Result } from "./DueRuns.ts"
import { invoke } from "./invoke.ts"
import { CronOptions } from "./options.ts"
import { channel } from "./run.ts"

/** Jobs that one transaction plans, and runs that one statement skips. */
const most = 500
const shortestSleep = 50
/** What is due and was not begun is in somebody's hands, or its organization has no room: an end of a run wakes us. */
const pause = 1_000

const attempts = Metric.counter("svc_cron_attempts_total", {
  description: "Attempts of cron runs by what they came to",
  incremental: true
})
const lateness = Metric.histogram("svc_cron_start_delay_seconds", {
  description: "Seconds from the time of a run to its first attempt",
  boundaries: [0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60]
})

/** Runs as jobs. */
export const runsLoop = Effect.gen(function* () {
  const due = yield* DueRuns
  const options = yield* CronOptions
  // Many end at the same moment: one statement stores what became of all of them.
  const record = yield* batched(
    ({ claimed }: Result) => `${claimed.id}/${claimed.lease}`,
    (results) => Effect.as(answered("record cron runs")(due.record(results)), results)
  )
  /** The last claim: the moment that it went by, and whether there may have been more for it. */
  let last = { at: "-infinity", full: false }

  const loop: LeasedLoop<Claimed, Result, Effect.Services<ReturnType<typeof invoke>>> = {
    name: "crons",
    does: "begin cron runs",
    idOf: ({ id }) => id,
    orgOf: ({ orgId }) => orgId,
    atOnce: options.concurrency,
    mostOfOneOrg: options.orgConcurrency,
    batch: options.batch,
    lanes: 2,
    leaseMs: options.leaseMs,
    heartbeatMs: options.heartbeatMs,
    drainMs: options.drainMs,
    lookMs: options.longestSleepMs,
    claim: Effect.fnUntraced(function* ({ most, orgs }) {
      for (;;) {
        const { at, looked, claimed } = yield* due.claim(most, orgs)
        last = { at, full: looked >= most }
        // All that it found were to be skipped, and are.
        if (looked > 0 && claimed.length === 0) continue
        for (const { attempt, lateBy } of claimed) {
          if (attempt === 1) yield* Metric.update(lateness, lateBy / 1000)
        }
        return claimed
      }
    }),
    run: (claimed) =>
      Effect.tap(invoke(claimed), ({ status }) =>
        Metric.update(Metric.withAttributes(attempts, { outcome: status }), 1)
      ),
    settle: (_, result) => Effect.asVoid(record(result)),
    renew: due.extend,
    release: due.release,
    nextIn: Effect.gen(function* () {
      if (last.full) return 0
      const { nextIn, left } = yield* due.nextRun(last.at)
      return left ? Math.min(pause, nextIn ?? pause) : nextIn
    })
  }
  return loop
})

export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const due = yield* DueRuns
    const options = yield* CronOptions
    const { notifications } = yield* Db
    const toPlan = yield* Queue.sliding<void>(1)
    const runs = yield* leased(yield* runsLoop)

    const planRound = Effect.gen(function* () {
      const looked = yield* answered("plan cron runs")(due.plan(most))
      if (looked > 0) yield* runs.look
      if (looked >= most) return
      const next = yield* answered("tell what is to be planned next")(due.nextPlan)
      const sleep = Math.max(shortestSleep, Math.min(options.longestSleepMs, next ?? options.longestSleepMs))
      yield* Effect.timeoutOption(Queue.take(toPlan), sleep)
    })
    const skipRound = due.skipLate(most).pipe(Effect.repeat({ while: (skipped) => skipped >= most }))

    yield* Effect.forkScoped(
      Stream.runForEach(notifications(channel), (payload) => {
        if (payload?.startsWith("stop ") === true) return runs.stop(payload.slice("stop ".length))
        Queue.offerUnsafe(toPlan, undefined)
        return runs.look
      })
    )
    yield* Effect.forkScoped(Effect.forever(supervise("plan cron runs", planRound)))
    yield* periodic({ does: "skip late cron runs", every: options.longestSleepMs / 3 }, skipRound)
  })
)
