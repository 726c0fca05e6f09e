/**
 * The loops that make cron jobs run: one plans times ahead, two begin what is due, one skips what is too late, one writes
 * results, one keeps leases. Any number of processes may run them.
 */
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import * as Queue from "effect/Queue"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"
import { persistent } from "#src/engine/persistent.ts"
import { makeFairShare } from "#src/loops/fair-share.ts"
import { Db, notifications } from "#src/store/Db.ts"
import { type Claimed, DueRuns, type Result } from "./DueRuns.ts"
import { invoke } from "./invoke.ts"
import { CronOptions } from "./options.ts"
import { channel } from "./run.ts"

/** Results that one statement writes, and jobs that one transaction plans. */
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

interface Running {
  readonly claimed: Claimed
  fiber: Fiber.Fiber<void> | undefined
}

export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const due = yield* DueRuns
    const options = yield* CronOptions
    const { engine: sql } = yield* Db
    const running = new Map<string, Running>()
    const slots = makeFairShare(options.concurrency, { mostOfOne: options.orgConcurrency })
    const results: Array<Result> = []
    const written = yield* Queue.sliding<void>(1)
    const toPlan = yield* Queue.sliding<void>(1)
    const toBegin = yield* Queue.sliding<void>(2)
    const runFork = Effect.runForkWith(yield* Effect.context<Effect.Services<ReturnType<typeof invoke>>>())

    const forget = (entry: Running) => {
      if (running.get(entry.claimed.id) !== entry) return
      running.delete(entry.claimed.id)
      slots.giveBack(entry.claimed.orgId)
      Queue.offerUnsafe(toBegin, undefined)
    }
    const stop = (id: string) => {
      const entry = running.get(id)
      if (entry === undefined) return Effect.void
      forget(entry)
      return entry.fiber === undefined
        ? Effect.void
        : Effect.asVoid(Effect.forkDetach(Fiber.interrupt(entry.fiber)))
    }

    const start = (claimed: Claimed) => {
      const entry: Running = { claimed, fiber: undefined }
      running.set(claimed.id, entry)
      slots.take(claimed.orgId)
      entry.fiber = runFork(
        Effect.matchCauseEffect(invoke(claimed), {
          onSuccess: (result) =>
            Effect.suspend(() => {
              // Stopped or lost meanwhile: nobody waits for this any more.
              if (running.get(claimed.id) !== entry) return Effect.void
              results.push(result)
              Queue.offerUnsafe(written, undefined)
              return Metric.update(Metric.withAttributes(attempts, { outcome: result.status }), 1)
            }),
          // The lease is let go and ends; whoever comes then says that this attempt was not seen to its end.
          onFailure: (cause) =>
            Effect.andThen(
              Effect.logError("a fault of the program: an attempt of a cron run came to no result", cause),
              Effect.sync(() => forget(entry))
            )
        })
      )
    }

    const sleep = (queue: Queue.Dequeue<void>, ms: number | undefined) =>
      Effect.timeoutOption(
        Queue.take(queue),
        Math.max(shortestSleep, Math.min(options.longestSleepMs, ms ?? options.longestSleepMs))
      )

    const planRound = Effect.gen(function* () {
      const looked = yield* due.plan(most)
      if (looked > 0) Queue.offerUnsafe(toBegin, undefined)
      if (looked < most) yield* sleep(toPlan, yield* due.nextPlan)
    })

    /** Slots that claims which are under way may fill. */
    let promised = 0
    const beginRound = Effect.gen(function* () {
      const rooms = slots.rooms(promised)
      // Never all that is left: it is for organizations that have no run yet.
      const most = Math.min(options.batch, Math.ceil((slots.free() - promised) / 2))
      if (rooms.others === 0 || most <= 0) return yield* sleep(toBegin, undefined)
      promised += most
      const { at, looked } = yield* Effect.gen(function* () {
        const claim = yield* due.claim(most, rooms)
        for (const one of claim.claimed) {
          if (one.attempt === 1) {
            yield* Metric.update(lateness, one.lateBy / 1000)
          }
          // Its lease was lost, and nobody here knew yet.
          yield* stop(one.id)
          start(one)
        }
        return claim
      }).pipe(
        Effect.uninterruptible,
        Effect.ensuring(
          Effect.sync(() => {
            promised -= most
          })
        )
      )
      // When slots are short, a few at a time would cost a transaction each: some more become free meanwhile.
      if (looked >= most) return most < options.batch ? yield* Effect.sleep(shortestSleep) : undefined
      const { nextIn, left } = yield* due.nextRun(at)
      yield* sleep(toBegin, left ? Math.min(pause, nextIn ?? pause) : nextIn)
    })

    const skipRound = due.skipLate(most).pipe(Effect.repeat({ while: (skipped) => skipped >= most }))

    const writeRound = Effect.gen(function* () {
      if (results.length === 0) yield* Queue.take(written)
      const batch = results.slice(0, most)
      if (batch.length === 0) return
      yield* due.record(batch)
      results.splice(0, batch.length)
      for (const { claimed } of batch) {
        const entry = running.get(claimed.id)
        if (entry?.claimed === claimed) forget(entry)
      }
    })

    const heartbeat = Effect.gen(function* () {
      const held = [...running.values()]
      if (held.length === 0) return
      const kept = yield* due.extend(held.map(({ claimed }) => claimed))
      for (const entry of held) {
        // What ended meanwhile is in nobody's hands either.
        if (!kept.has(entry.claimed.id) && running.get(entry.claimed.id) === entry)
          yield* stop(entry.claimed.id)
      }
    })

    yield* Effect.forkScoped(
      Effect.repeat(persistent("keep its cron runs", heartbeat), Schedule.spaced(options.heartbeatMs))
    )
    yield* Effect.forkScoped(Effect.forever(persistent("record cron runs", writeRound)))
    // Finalizers run in reverse: the loops below stop first, then what they began gets its time.
    yield* Effect.addFinalizer(() =>
      Effect.gen(function* () {
        yield* Effect.sleep("25 millis").pipe(
          Effect.repeat({ until: () => running.size === 0 }),
          Effect.timeoutOption(options.drainMs)
        )
        const left = [...running.values()]
        yield* Fiber.interruptAll(left.flatMap(({ fiber }) => (fiber === undefined ? [] : [fiber])))
        if (left.length > 0) yield* due.release(left.map(({ claimed }) => claimed))
      }).pipe(
        Effect.catchCause((cause) =>
          Effect.logWarning("cron runs could not be given back; their leases end", cause)
        )
      )
    )
    yield* Effect.forkScoped(
      Stream.runForEach(notifications(sql, channel), (payload) => {
        if (payload?.startsWith("stop ") === true) return stop(payload.slice("stop ".length))
        Queue.offerUnsafe(toPlan, undefined)
        Queue.offerUnsafe(toBegin, undefined)
        return Effect.void
      })
    )
    yield* Effect.forkScoped(Effect.forever(persistent("plan cron runs", planRound)))
    for (const _lane of [1, 2]) {
      yield* Effect.forkScoped(Effect.forever(persistent("begin cron runs", beginRound)))
    }
    yield* Effect.forkScoped(
      Effect.repeat(persistent("skip late cron runs", skipRound), Schedule.spaced(options.longestSleepMs / 3))
    )
  })
)
