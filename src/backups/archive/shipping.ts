/**
 * Moves finished segments of the log from where the servers' archive command leaves them into the repository, and says
 * when that is late or does not work. A segment leaves the first folder only when it is durable in the second.
 *
 * When the disk is nearly full and the repository takes nothing, the oldest segments are given up, so that the
 * database can go on: what can be restored then has a gap, which ends with the next base backup.
 */
import * as fs from "node:fs/promises"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import { AppConfig } from "#src/config.ts"
import type { ManagedDatabase } from "../Databases.ts"
import { detailOf } from "../error-messages.ts"
import { Jobs } from "../Jobs.ts"
import { Ledger, type LineageRef, type NewObject, type Trouble } from "../Ledger.ts"
import { BackupOptions } from "../options.ts"
import type { PlaceError } from "../repository/Place.ts"
import { Repository } from "../repository/Repository.ts"
import { putSealed } from "../repository/transfer.ts"
import { isHistory, isSegment } from "./log.ts"
import { type Finished, finishedIn, type Spool, spoolsOf } from "./spools.ts"

/** Segments of one database that are taken at a time, and how many of them at once. */
const batch = 64
const atOnce = 4

const shipped = Metric.counter("svc_backup_segments_total", {
  description: "Segments of logs that came into the repository",
  incremental: true
})
const lost = Metric.counter("svc_backup_segments_given_up_total", {
  description: "Segments of logs that were given up because the disk was full",
  incremental: true
})
const behind = Metric.gauge("svc_backup_oldest_segment_seconds", {
  description: "Age of the oldest finished segment that is not in the repository"
})

export const makeShipping = Effect.gen(function* () {
  const ledger = yield* Ledger
  const jobs = yield* Jobs
  const repository = yield* Repository
  const { dataDir } = yield* AppConfig
  const options = yield* BackupOptions
  const token = yield* ledger.newToken

  /** When each history was looked at last, as the number of the round: whoever waits longest comes first. */
  const served = new Map<string, number>()
  let rounds = 0

  const ship = Effect.fnUntraced(function* (
    ref: LineageRef,
    key: Uint8Array,
    { name, file, finishedAt }: Finished
  ) {
    const buffers = unused.pop() ?? makeBuffers()
    return yield* putSealed(
      repository.local,
      key,
      ref.lineage,
      { name: `wal/${name}`, backupId: null, finishedAt: isSegment(name) ? finishedAt : null },
      () => read(file, buffers)
    ).pipe(Effect.ensuring(Effect.sync(() => unused.push(buffers))))
  })

  /** One batch of one database, for as long as this process may ship it. */
  const round = Effect.fn("shipping.round")(function* (
    { database, folder }: Spool,
    some: ReadonlyArray<Finished>
  ) {
    const ref = { orgId: database.orgId, lineage: database.lineage }
    const key = yield* ledger.keyOf(ref)
    if (Option.isNone(key)) return
    const now = yield* Clock.currentTimeMillis
    let trouble: Trouble | undefined
    if ((yield* freeBytes(dataDir)) < options.reserveBytes) trouble = full
    else {
      // What came in before this process was killed is only to be removed.
      const known = yield* ledger.known(
        ref,
        some.map(({ name }) => `wal/${name}`)
      )
      const made: Array<NewObject> = []
      const outcome = yield* Effect.result(
        Effect.forEach(
          some.filter(({ name }) => !known.has(`wal/${name}`)),
          (one) => Effect.tap(ship(ref, key.value, one), (object) => Effect.sync(() => made.push(object))),
          { concurrency: atOnce, discard: true }
        )
      )
      yield* ledger.add(ref, made, database.destinationIds)
      yield* Metric.update(shipped, made.length)
      const done = new Set([...known, ...made.map(({ name }) => name)])
      yield* Effect.promise(async () => {
        for (const { name, file } of some) if (done.has(`wal/${name}`)) await fs.rm(file, { force: true })
      })
      if (outcome._tag === "Failure") trouble = troubleOf(outcome.failure)
    }
    const [left] = yield* finishedIn(folder)
    const age = left === undefined ? 0 : now - left.finishedAt.getTime()
    return { trouble: trouble ?? late(left, now), age, failed: trouble !== undefined }
  })

  const late = (oldest: Finished | undefined, now: number): Trouble | undefined =>
    oldest === undefined || now - oldest.finishedAt.getTime() <= options.behindAfterMs
      ? undefined
      : {
          reason: "ArchivingBehind",
          message: `The oldest finished part of the log waits since ${oldest.finishedAt.toISOString()} to be archived`
        }

  /** While it goes on nobody else ships this one. None: somebody else does. */
  const held = <A, E, R>(ref: LineageRef, self: Effect.Effect<A, E, R>) => {
    const hold = Effect.map(ledger.holdShipping([ref], token, options.leaseSeconds), (all) => all.size > 0)
    const lost = Effect.sleep((options.leaseSeconds * 1000) / 3).pipe(
      Effect.andThen(hold),
      Effect.repeat({ while: (mine) => mine }),
      Effect.as(Option.none<A>())
    )
    return Effect.flatMap(hold, (mine) =>
      mine ? Effect.raceFirst(Effect.asSome(self), lost) : Effect.succeed(Option.none<A>())
    )
  }

  /** Gives up the oldest of what is left, until there is room again. */
  const makeRoom = Effect.fnUntraced(function* ({ database, current, folder }: Spool, reserve: number) {
    let given = 0
    for (const { file, name } of yield* finishedIn(folder)) {
      if (isHistory(name) || (yield* freeBytes(dataDir)) > reserve) continue
      yield* Effect.promise(() => fs.rm(file, { force: true }))
      given++
    }
    if (given === 0) return
    yield* Metric.update(lost, given)
    yield* Effect.logError("segments of a database's log were given up because the disk is full", {
      database: database.uid,
      segments: given
    })
    // What a database was before goes on no more: a backup of it cannot be made.
    if (!current) return
    yield* jobs.queue({
      orgId: database.orgId,
      kind: "backup",
      databaseUid: database.uid,
      lineage: database.lineage,
      backupId: null,
      reason: "gap"
    })
  })

  yield* Effect.addFinalizer(() => Effect.ignore(ledger.releaseShipping(token)))

  return {
    /**
     * Ships of each of these at most one batch, first of those that somebody waits for, and for a bounded time.
     * Answers what is wrong with whom, of whom that is not known, and whether there is more to do at once.
     */
    all: Effect.fnUntraced(function* (databases: ReadonlyArray<ManagedDatabase>) {
      const troubles = new Map<string, Trouble>()
      const unknown = new Set<string>()
      const waiting: Array<readonly [Spool, ReadonlyArray<Finished>]> = []
      for (const database of databases) {
        for (const spool of yield* spoolsOf(dataDir, database)) {
          const finished = yield* finishedIn(spool.folder)
          if (finished.length > 0) waiting.push([spool, finished])
        }
      }
      const wanted = waiting.length === 0 ? new Set<string>() : yield* ledger.flushWanted
      const rank = ([{ database }]: (typeof waiting)[number]) =>
        wanted.has(database.lineage) ? -1 : (served.get(database.lineage) ?? 0)
      waiting.sort((a, b) => rank(a) - rank(b))
      const start = yield* Clock.currentTimeMillis
      rounds++
      let oldest = 0
      let more = false
      yield* Effect.forEach(
        waiting,
        ([spool, finished]) =>
          Effect.gen(function* () {
            const { orgId, lineage, uid } = spool.database
            const now = yield* Clock.currentTimeMillis
            if (now - start > options.shipMs && !wanted.has(lineage)) {
              more = true
              const trouble = late(finished[0], now)
              if (trouble === undefined) unknown.add(lineage)
              else troubles.set(lineage, trouble)
              return
            }
            served.set(lineage, rounds)
            const ref = { orgId, lineage }
            yield* ledger.ensure(ref, uid)
            const came = Option.getOrUndefined(yield* held(ref, round(spool, finished.slice(0, batch))))
            if (came === undefined) {
              unknown.add(lineage)
              return
            }
            // What was finished meanwhile waits for company: a round for each segment would cost more than the segments.
            more ||= finished.length > batch && !came.failed
            oldest = Math.max(oldest, came.age)
            if (came.trouble === undefined) return
            troubles.set(lineage, came.trouble)
            if ((yield* freeBytes(dataDir)) < options.reserveBytes) {
              yield* makeRoom(spool, options.reserveBytes)
            }
          }),
        { concurrency: 2, discard: true }
      )
      yield* Metric.update(behind, oldest / 1000)
      return { troubles, unknown, more }
    })
  }
})

const full: Trouble = {
  reason: "ArchivingFailing",
  message: "The disk is full: finished parts of the log cannot be archived. Free some space"
}
const troubleOf = (error: PlaceError): Trouble =>
  error.reason === "no_space"
    ? full
    : {
        reason: "ArchivingFailing",
        message: `Finished parts of the log cannot be archived: ${error.message}`,
        detail: detailOf(error)
      }

type Buffers = readonly [Buffer, Buffer]
const makeBuffers = (): Buffers => [Buffer.allocUnsafeSlow(1 << 20), Buffer.allocUnsafeSlow(1 << 20)]
/** Used again and again: to collect some for each segment costs more than to read it. */
const unused: Array<Buffers> = []

/** A chunk is done with when the next but one is asked for: two buffers in turn are enough. */
async function* read(file: string, [first, second]: Buffers): AsyncGenerator<Uint8Array> {
  const handle = await fs.open(file, "r")
  try {
    for (let [buffer, other] = [first, second]; ; [buffer, other] = [other, buffer]) {
      const { bytesRead } = await handle.read(buffer, 0, buffer.length, null)
      if (bytesRead === 0) return
      yield buffer.subarray(0, bytesRead)
    }
  } finally {
    await handle.close()
  }
}

export const freeBytes = (folder: string): Effect.Effect<number> =>
  Effect.promise(() =>
    fs.statfs(folder).then(
      ({ bavail, bsize }) => bavail * bsize,
      () => Number.POSITIVE_INFINITY
    )
  )
