/**
 * Moves finished segments of the log from where the servers' archive command leaves them into the repository, and says
 * when that is late or does not work. A segment leaves the first folder only when it is durable in the second.
 *
 * When the disk is nearly full and the repository takes nothing, the oldest segments are given up, so that the
 * database can go on: what can be restored then has a gap, which ends with the next base backup.
 */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import { AppConfig } from "#src/config.ts"
import { serverFolders } from "#src/infra/postgres-folders.ts"
import type { ManagedDatabase } from "./Databases.ts"
import { Jobs } from "./Jobs.ts"
import { Ledger, type LineageRef, type NewObject, type Trouble } from "./Ledger.ts"
import { isHistory, isSegment } from "./log.ts"
import { BackupOptions } from "./options.ts"
import { PlaceError } from "./Place.ts"
import { Repository } from "./Repository.ts"
import { putSealed } from "./transfer.ts"

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

interface Spool {
  /** With the lineage whose segments these are. */
  readonly database: ManagedDatabase
  readonly folder: string
}
interface Finished {
  readonly name: string
  readonly file: string
  readonly finishedAt: Date
}

export const makeShipping = Effect.gen(function* () {
  const ledger = yield* Ledger
  const jobs = yield* Jobs
  const repository = yield* Repository
  const { dataDir } = yield* AppConfig
  const options = yield* BackupOptions
  const token = yield* ledger.newToken

  const { dirOf } = serverFolders(dataDir)

  /** Folders of finished segments, each of one history: after a change of the data folder there may be two. */
  const spoolsOf = (database: ManagedDatabase) =>
    Effect.promise(async (): Promise<ReadonlyArray<Spool>> => {
      const names = await fs.readdir(dirOf(database.uid)).catch(() => [])
      return names.flatMap((name) => {
        const folder = path.join(dirOf(database.uid), name)
        if (name === "archive") return [{ database: { ...database, lineage: database.uid }, folder }]
        const [, lineage] = /^archive-([0-9a-f-]{36})$/.exec(name) ?? []
        return lineage === undefined ? [] : [{ database: { ...database, lineage }, folder }]
      })
    })

  const ship = Effect.fnUntraced(function* (
    ref: LineageRef,
    key: Uint8Array,
    { name, file, finishedAt }: Finished
  ) {
    return yield* putSealed(
      repository.local,
      key,
      ref.lineage,
      { name: `wal/${name}`, backupId: null, finishedAt: isSegment(name) ? finishedAt : null },
      () => read(file)
    )
  })

  /** One look at one database. */
  const round = Effect.fn("shipping.round")(function* (
    { database, folder }: Spool,
    finished: ReadonlyArray<Finished>
  ) {
    const ref = { orgId: database.orgId, lineage: database.lineage }
    const key = yield* ledger.keyOf(ref)
    if (Option.isNone(key)) return
    const now = yield* Clock.currentTimeMillis
    let trouble: Trouble | undefined
    for (let at = 0; at < finished.length && trouble === undefined; at += batch) {
      const some = finished.slice(at, at + batch)
      if ((yield* freeBytes(dataDir)) < options.reserveBytes) {
        trouble = full
        break
      }
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
    const left = (yield* look(folder))[0]
    const age = left === undefined ? 0 : now - left.finishedAt.getTime()
    if (trouble === undefined && age > options.behindAfterMs) {
      trouble = {
        reason: "ArchivingBehind",
        message: `The oldest finished part of the log waits since ${left?.finishedAt.toISOString()} to be archived`
      }
    }
    return { trouble, age }
  })

  const look = (folder: string) =>
    Effect.promise(async (): Promise<ReadonlyArray<Finished>> => {
      const names = await fs.readdir(folder).catch(() => [])
      const found: Array<Finished> = []
      for (const name of names) {
        const file = path.join(folder, name)
        // Labels of backups are kept with the backups; a part of a segment that another timeline ended is in that one.
        if (/\.(backup|partial)$/.test(name)) await fs.rm(file, { force: true })
        if (!isSegment(name) && !isHistory(name)) continue
        const stat = await fs.stat(file).catch(() => undefined)
        if (stat !== undefined) found.push({ name, file, finishedAt: stat.mtime })
      }
      return found.sort((a, b) => (order(a.name) < order(b.name) ? -1 : 1))
    })

  /** Gives up the oldest of what is left, until there is room again. */
  const makeRoom = Effect.fnUntraced(function* ({ database, folder }: Spool, reserve: number) {
    let given = 0
    for (const { file, name } of yield* look(folder)) {
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
    /** Ships what is finished of all of these, and answers what is wrong with whom. */
    all: Effect.fnUntraced(function* (databases: ReadonlyArray<ManagedDatabase>) {
      const troubles = new Map<string, Trouble>()
      const waiting: Array<readonly [Spool, ReadonlyArray<Finished>]> = []
      for (const database of databases) {
        for (const spool of yield* spoolsOf(database)) {
          const finished = yield* look(spool.folder)
          if (finished.length > 0) waiting.push([spool, finished])
        }
      }
      yield* Effect.forEach(
        waiting,
        ([{ database }]) => ledger.ensure({ orgId: database.orgId, lineage: database.lineage }, database.uid),
        { discard: true }
      )
      const refs = waiting.map(
        ([
          {
            database: { orgId, lineage }
          }
        ]) => ({ orgId, lineage })
      )
      const held = yield* ledger.holdShipping(refs, token, options.leaseSeconds)
      let oldest = 0
      yield* Effect.forEach(
        waiting.filter(([{ database }]) => held.has(database.lineage)),
        ([spool, finished]) =>
          Effect.gen(function* () {
            const came = yield* round(spool, finished)
            if (came === undefined) return
            oldest = Math.max(oldest, came.age)
            if (came.trouble === undefined) return
            troubles.set(spool.database.lineage, came.trouble)
            if ((yield* freeBytes(dataDir)) < options.reserveBytes) {
              yield* makeRoom(spool, options.reserveBytes)
            }
          }),
        { concurrency: 2, discard: true }
      )
      yield* Metric.update(behind, oldest / 1000)
      return troubles
    })
  }
})

const full: Trouble = {
  reason: "ArchivingFailing",
  message: "The disk is full: finished parts of the log cannot be archived. Free some space"
}
const troubleOf = (error: unknown): Trouble => {
  if (error instanceof PlaceError && error.reason === "no_space") return full
  return {
    reason: "ArchivingFailing",
    message: `Finished parts of the log cannot be archived: ${error instanceof Error ? error.message : String(error)}`
  }
}

/** By position; history files first, because a timeline is of no use without them. */
const order = (name: string) => (isHistory(name) ? `0${name}` : `1${name.slice(8)}${name}`)

async function* read(file: string): AsyncGenerator<Uint8Array> {
  const handle = await fs.open(file, "r")
  // One for all of it: a chunk is done with when the next one is asked for.
  const buffer = Buffer.allocUnsafeSlow(1 << 20)
  try {
    for (;;) {
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
