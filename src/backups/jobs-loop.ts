/** Base backups and drills as jobs of a leased loop: each tells its progress with every renewal of its lease. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Random from "effect/Random"
import type { LeasedLoop } from "#src/loops/leased.ts"
import { Db } from "#src/store/Db.ts"
import { BackupFailed, type makeBase } from "./base.ts"
import { managedDatabases } from "./Databases.ts"
import type { makeDrill } from "./drill.ts"
import { detailOf } from "./error-messages.ts"
import { type BackupResult, type ClaimedJob, Jobs, mostAttempts, type Progress } from "./Jobs.ts"
import { BackupOptions } from "./options.ts"

/** A step that makes no progress for so long does not come back. */
const stuckAfterMs = 15 * 60_000
/** Between attempts of a job, in seconds. */
const longestPause = 900
/** What is half made is removed before a job is given back. */
const interruptMs = 60_000

/** What a job came to. */
export type Outcome =
  /** Of a drill there is no result to keep. */
  | { readonly _tag: "Succeeded"; readonly result: BackupResult | undefined }
  /** `again`: seconds until the next attempt; undefined: there is none. */
  | { readonly _tag: "Failed"; readonly message: string; readonly again: number | undefined }

/** How a job is done, and what hears of it. */
export interface JobWork {
  readonly base: Effect.Success<typeof makeBase>
  readonly drill: Effect.Success<typeof makeDrill>
  /** What was asked for with its proof is to be proved then, if no other drill is under way. */
  readonly afterSuccess: Effect.Effect<void>
}

export const jobsLoop = Effect.fnUntraced(function* ({ base, drill, afterSuccess }: JobWork) {
  const db = yield* Db
  const jobs = yield* Jobs
  const options = yield* BackupOptions
  const wanted = managedDatabases.pipe(Effect.provideService(Db, db))

  /** Told with the next renewal. */
  const progress = new WeakMap<ClaimedJob, Progress>()
  const starting: Progress = { step: "starting", done: 0, total: 0 }
  const tellStore = (job: ClaimedJob) => jobs.extend(job, progress.get(job) ?? starting, options.leaseSeconds)

  const act = Effect.fnUntraced(function* (job: ClaimedJob, report: (progress: Progress) => void) {
    yield* tellStore(job)
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

  const run = Effect.fnUntraced(function* (job: ClaimedJob) {
    const clock = yield* Clock.Clock
    let moved = clock.currentTimeMillisUnsafe()
    const report = (next: Progress) => {
      const before = progress.get(job) ?? starting
      if (next.done !== before.done || next.step !== before.step) moved = clock.currentTimeMillisUnsafe()
      progress.set(job, next)
    }
    const untilStuck = Effect.gen(function* () {
      while (clock.currentTimeMillisUnsafe() - moved <= stuckAfterMs) {
        yield* Effect.sleep(options.heartbeatMs)
      }
      const { step } = progress.get(job) ?? starting
      return yield* new BackupFailed({ message: `No progress was made while ${step}`, again: true })
    })
    return yield* Effect.raceFirst(act(job, report), untilStuck).pipe(
      Effect.map((result): Outcome => ({ _tag: "Succeeded", result })),
      Effect.catchTag("BackupFailed", (error) =>
        Effect.gen(function* (): Effect.fn.Return<Outcome> {
          yield* Effect.logWarning(`a ${job.kind} of a database failed`, {
            database: job.databaseUid,
            attempt: job.attempt,
            error: detailOf(error)
          })
          if (job.kind === "backup") yield* Effect.ignore(base.clear(job))
          const longer = Math.min(longestPause, options.retrySeconds * 3 ** (job.attempt - 1))
          const pause = longer * (0.8 + 0.4 * (yield* Random.next))
          const again = error.again && job.attempt < mostAttempts ? pause : undefined
          return { _tag: "Failed", message: error.message, again }
        })
      )
    )
  })

  const loop: LeasedLoop<ClaimedJob, Outcome> = {
    name: "backups",
    does: "make backups",
    idOf: ({ id }) => id,
    orgOf: ({ orgId }) => orgId,
    atOnce: options.jobs,
    // They are so few that one kept free would mostly stand idle; whoever has the fewest comes first.
    reserve: false,
    leaseMs: options.leaseSeconds * 1000,
    heartbeatMs: options.heartbeatMs,
    interruptMs,
    claim: ({ most, orgs }) =>
      jobs.claim(
        most,
        options.leaseSeconds,
        new Map([...orgs.holders].map(([org, { held }]) => [org, held]))
      ),
    run,
    settle: (job, outcome) =>
      outcome._tag === "Succeeded"
        ? tellStore(job).pipe(Effect.andThen(jobs.succeed(job, outcome.result)), Effect.andThen(afterSuccess))
        : Effect.asVoid(jobs.fail(job, outcome.message, outcome.again)),
    renew: Effect.fnUntraced(function* (held) {
      const kept = new Set<string>()
      for (const job of held) if (yield* tellStore(job)) kept.add(job.id)
      return kept
    }),
    release: jobs.release,
    nextIn: jobs.nextIn
  }
  return loop
})
