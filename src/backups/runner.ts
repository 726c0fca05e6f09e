/**
 * The loops that keep databases restorable: one ships their logs, one makes what is due, one brings copies to
 * destinations, one removes what is no longer kept. Any number of processes may run them.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Queue from "effect/Queue"
import * as Random from "effect/Random"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"
import { AppConfig } from "#src/config.ts"
import { persistent } from "#src/engine/persistent.ts"
import { Db, notifications } from "#src/store/Db.ts"
import { BackupFailed, makeBase } from "./base.ts"
import { makeCopies } from "./copies.ts"
import { type ManagedDatabase, managedDatabases } from "./Databases.ts"
import { makeDrill } from "./drill.ts"
import { makeHousekeeping } from "./housekeeping.ts"
import { type ClaimedJob, Jobs, mostAttempts, type Progress } from "./Jobs.ts"
import { channel, Ledger, type Trouble } from "./Ledger.ts"
import { BackupOptions } from "./options.ts"
import { makeSchedule } from "./schedule.ts"
import { detailOf } from "./sentences.ts"
import { freeBytes, makeShipping } from "./shipping.ts"

/** A step that makes no progress for so long does not come back. */
const stuckAfterMs = 15 * 60_000
/** Between attempts of a job, in seconds. */
const longestPause = 900

export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const db = yield* Db
    const ledger = yield* Ledger
    const jobs = yield* Jobs
    const options = yield* BackupOptions
    const { dataDir } = yield* AppConfig
    const shipping = yield* makeShipping
    const base = yield* makeBase
    const drill = yield* makeDrill
    const copies = yield* makeCopies
    const schedule = yield* makeSchedule
    const housekeeping = yield* makeHousekeeping
    const wanted = managedDatabases.pipe(Effect.provideService(Db, db))

    /** By the token: a process that slept through a lease may have taken the same job again. */
    const running = new Map<string, { readonly job: ClaimedJob; fiber: Fiber.Fiber<void> | undefined }>()
    const woken = yield* Queue.sliding<void>(1)
    const toRun = yield* Queue.sliding<void>(1)
    const toPlan = yield* Queue.sliding<void>(1)

    /** What is wrong with each history is told when it begins and when it ends. */
    const tell = Effect.fnUntraced(function* (
      databases: ReadonlyArray<ManagedDatabase>,
      archiving: { readonly troubles: ReadonlyMap<string, Trouble>; readonly unknown: ReadonlySet<string> }
    ) {
      const now = new Map(archiving.troubles)
      for (const { lineage, error } of yield* copies.failing) {
        if (!now.has(lineage))
          now.set(lineage, {
            reason: "DestinationFailing",
            message: `Backups do not reach a destination: ${error}`
          })
      }
      const before = yield* ledger.troubled
      const full = before.size > 0 && (yield* freeBytes(dataDir)) < options.reserveBytes
      for (const { orgId, lineage } of databases) {
        const trouble = now.get(lineage)
        // It was not its turn, or another process looks after it.
        if (trouble === undefined && archiving.unknown.has(lineage)) continue
        // What waited was given up, and what comes next will be: that nothing waits is no good sign.
        if (trouble === undefined && full && before.get(lineage) === "ArchivingFailing") continue
        if (trouble === undefined && !before.has(lineage)) continue
        const news = yield* ledger.setTrouble({ orgId, lineage }, trouble)
        if (news && trouble?.detail !== undefined) {
          yield* Effect.logWarning("a database's log cannot be archived", { lineage, error: trouble.detail })
        }
      }
    })

    let seen = ""
    const look = Effect.gen(function* () {
      const databases = yield* wanted
      const now = databases
        .map((one) => [one.uid, one.lineage, one.ready, ...one.destinationIds].join())
        .sort()
        .join()
      if (now !== seen) Queue.offerUnsafe(toPlan, undefined)
      seen = now
      const archiving = yield* shipping.all(databases)
      yield* tell(databases, archiving)
      yield* copies.round
      if (!archiving.more) yield* Effect.timeoutOption(Queue.take(woken), options.lookMs)
    })

    const clock = yield* Clock.Clock
    const work = (job: ClaimedJob) => {
      let progress: Progress = { step: "starting", done: 0, total: 0 }
      let moved = clock.currentTimeMillisUnsafe()
      const report = (next: Progress) => {
        if (next.done !== progress.done || next.step !== progress.step)
          moved = clock.currentTimeMillisUnsafe()
        progress = next
      }
      const beat = Effect.gen(function* () {
        yield* Effect.sleep(options.heartbeatMs)
        if (clock.currentTimeMillisUnsafe() - moved > stuckAfterMs) {
          return yield* new BackupFailed({
            message: `No progress was made while ${progress.step}`,
            again: true
          })
        }
        if (!(yield* jobs.extend(job, progress, options.leaseSeconds))) return yield* Effect.interrupt
      })
      const act = Effect.gen(function* () {
        yield* jobs.extend(job, progress, options.leaseSeconds)
        if (job.kind === "drill") {
          yield* drill.run(job, report)
          return undefined
        }
        const database = (yield* wanted).find(({ uid }) => uid === job.databaseUid)
        if (database !== undefined && database.lineage !== job.lineage) {
          return yield* new BackupFailed({
            message: "The database's data was replaced since this backup was asked for",
            again: false
          })
        }
        return yield* base.run(job, database?.destinationIds ?? [], report)
      })
      return Effect.gen(function* () {
        const result = yield* Effect.raceFirst(act, Effect.forever(beat))
        yield* jobs.extend(job, progress, options.leaseSeconds)
        yield* jobs.succeed(job, result)
        // What was asked for with its proof is to be proved now, if no other drill is under way.
        Queue.offerUnsafe(toPlan, undefined)
      }).pipe(
        Effect.catchTag("BackupFailed", (error) =>
          Effect.gen(function* () {
            yield* Effect.logWarning(`a ${job.kind} of a database failed`, {
              database: job.databaseUid,
              attempt: job.attempt,
              error: detailOf(error)
            })
            if (job.kind === "backup") yield* Effect.ignore(base.clear(job))
            const longer = Math.min(longestPause, options.retrySeconds * 3 ** (job.attempt - 1))
            const pause = longer * (0.8 + 0.4 * (yield* Random.next))
            const again = error.again && job.attempt < mostAttempts ? pause : undefined
            yield* jobs.fail(job, error.message, again)
          })
        ),
        Effect.catchCause((cause) =>
          // The lease ends, and somebody else goes on.
          Effect.logWarning(`a ${job.kind} of a database was left`, cause)
        ),
        Effect.ensuring(
          Effect.sync(() => {
            running.delete(job.token)
            Queue.offerUnsafe(toRun, undefined)
          })
        )
      )
    }

    const run = Effect.gen(function* () {
      const room = options.jobs - running.size
      if (room > 0) {
        yield* Effect.uninterruptible(
          Effect.gen(function* () {
            for (const job of yield* jobs.claim(room, options.leaseSeconds)) {
              const entry: { job: ClaimedJob; fiber: Fiber.Fiber<void> | undefined } = {
                job,
                fiber: undefined
              }
              running.set(job.token, entry)
              entry.fiber = yield* Effect.forkDetach(Effect.interruptible(work(job)))
            }
          })
        )
      }
      yield* Effect.timeoutOption(Queue.take(toRun), options.lookMs)
    })

    const plan = Effect.gen(function* () {
      yield* schedule(yield* wanted)
      yield* housekeeping.departed
      for (const job of yield* jobs.halfMade) yield* Effect.ignore(base.clear({ ...job, token: null }))
      yield* drill.tidy
      yield* Effect.timeoutOption(Queue.take(toPlan), options.planMs)
    })

    yield* Effect.addFinalizer(() =>
      Effect.gen(function* () {
        const left = [...running.values()]
        yield* Fiber.interruptAll(left.flatMap(({ fiber }) => (fiber === undefined ? [] : [fiber])))
        yield* jobs.release(left.map(({ job }) => job))
      }).pipe(
        Effect.catchCause((cause) =>
          Effect.logWarning("backups could not be given back; their leases end", cause)
        )
      )
    )
    yield* Effect.forkScoped(
      Stream.runForEach(notifications(db.engine, channel), () =>
        Effect.sync(() => {
          Queue.offerUnsafe(woken, undefined)
          Queue.offerUnsafe(toRun, undefined)
        })
      )
    )
    yield* Effect.forkScoped(Effect.forever(persistent("archive the logs of databases", look)))
    yield* Effect.forkScoped(Effect.forever(persistent("make backups", run)))
    yield* Effect.forkScoped(Effect.forever(persistent("plan backups", plan)))
    yield* Effect.forkScoped(
      Effect.repeat(
        persistent(
          "remove old backups",
          Effect.gen(function* () {
            yield* housekeeping.retention(yield* wanted)
            yield* copies.tidy
            yield* housekeeping.debris
          })
        ),
        Schedule.spaced(options.tidyMs)
      )
    )
  })
)
