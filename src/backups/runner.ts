/**
 * The loops that keep databases restorable: one ships their logs, one makes what is due, one brings copies to
 * destinations, one removes what is no longer kept. Any number of processes may run them.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Queue from "effect/Queue"
import * as Stream from "effect/Stream"
import { AppConfig } from "#src/config.ts"
import { answered } from "#src/engine/answered.ts"
import { supervise } from "#src/engine/supervise.ts"
import { leased } from "#src/loops/leased.ts"
import { periodic } from "#src/loops/periodic.ts"
import { Db } from "#src/store/Db.ts"
import { freeBytes, makeShipping } from "./archive/shipping.ts"
import { makeBase } from "./base.ts"
import { type ManagedDatabase, managedDatabases } from "./Databases.ts"
import { makeCopies } from "./destinations/copies.ts"
import { makeDrill } from "./drill.ts"
import { makeHousekeeping } from "./housekeeping.ts"
import { Jobs } from "./Jobs.ts"
import { jobsLoop } from "./jobs-loop.ts"
import { channel, Ledger, type Trouble } from "./Ledger.ts"
import { BackupOptions } from "./options.ts"
import { makeSchedule } from "./schedule.ts"

/** A round that takes longer waits for an answer that will not come. */
const roundMs = 10 * 60_000
const tidyWithinMs = 6 * 3_600_000

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

    const woken = yield* Queue.sliding<void>(1)
    const toPlan = yield* Queue.sliding<void>(1)
    const work = yield* leased(
      yield* jobsLoop({ base, drill, afterSuccess: Effect.asVoid(Queue.offer(toPlan, undefined)) })
    )
    const carrying = yield* leased(copies.loop)

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
      if (databases.length > 0) yield* tell(databases, archiving)
      // What was archived goes on to destinations.
      yield* carrying.look
      return archiving.more
    }).pipe(
      answered("archive the logs of databases", roundMs),
      Effect.flatMap((more) => (more ? Effect.void : Effect.timeoutOption(Queue.take(woken), options.lookMs)))
    )

    const plan = Effect.gen(function* () {
      yield* schedule(yield* wanted)
      yield* housekeeping.departed
      for (const job of yield* jobs.halfMade) yield* Effect.ignore(base.clear({ ...job, token: null }))
      yield* drill.tidy
    }).pipe(
      answered("plan backups", roundMs),
      Effect.andThen(Effect.timeoutOption(Queue.take(toPlan), options.planMs))
    )

    yield* Effect.forkScoped(
      Stream.runForEach(db.notifications(channel), () => {
        Queue.offerUnsafe(woken, undefined)
        return Effect.andThen(work.look, carrying.look)
      })
    )
    yield* Effect.forkScoped(Effect.forever(supervise("archive the logs of databases", look)))
    yield* Effect.forkScoped(Effect.forever(supervise("plan backups", plan)))
    yield* periodic(
      // Objects are removed one by one, at destinations that may be slow.
      { does: "remove old backups", every: options.tidyMs, withinMs: tidyWithinMs },
      Effect.gen(function* () {
        yield* housekeeping.retention(yield* wanted)
        yield* copies.tidy
        yield* housekeeping.debris
      })
    )
  })
)
