/** One base backup of a running server into the repository of this machine. */
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { AppConfig } from "#src/config.ts"
import { Host } from "#src/infra/host/Host.ts"
import { backupFiles, withBackup } from "#src/infra/postgres/backup.ts"
import { PostgresServers } from "#src/infra/postgres/PostgresServers.ts"
import { numberOf, timelineOf } from "./archive/log.ts"
import { freeBytes } from "./archive/shipping.ts"
import { serverFault } from "./error-messages.ts"
import type { ClaimedJob, Progress } from "./Jobs.ts"
import { type Attempt, Ledger, type LineageRef } from "./Ledger.ts"
import { BackupOptions } from "./options.ts"
import { pack, partsOf } from "./repository/bundle.ts"
import { PlaceError } from "./repository/Place.ts"
import { FlushFailed, Repository } from "./repository/Repository.ts"
import { putSealed } from "./repository/transfer.ts"

export class BackupFailed extends Schema.TaggedError<BackupFailed>()("BackupFailed", {
  message: Schema.String,
  /** Whether it may go right later without anybody doing something. */
  again: Schema.Boolean,
  cause: Schema.optionalKey(Schema.Defect())
}) {}

/** Tenants read it: in our words. What was said exactly is in the cause, for the log. */
export const asFailed = (error: unknown): BackupFailed =>
  isFailed(error)
    ? error
    : new BackupFailed({
        message: inOurWords(error) ? error.message : serverFault(error),
        again: true,
        cause: error
      })
const isFailed = Schema.is(BackupFailed)
const inOurWords = Schema.is(Schema.Union([PlaceError, FlushFailed]))

export const makeBase = Effect.gen(function* () {
  const ledger = yield* Ledger
  const repository = yield* Repository
  const servers = yield* PostgresServers
  const { socketDir } = yield* Host
  const { dataDir } = yield* AppConfig
  const options = yield* BackupOptions

  const failed = (message: string, cause?: unknown) => new BackupFailed({ message, again: true, cause })
  const orFailed = Effect.mapError(asFailed)

  /**
   * Takes away what an attempt left that did not come to its end. Listed before it is asked whether this attempt still
   * goes on: what another one makes has names of its own, which cannot be in a list from before it began.
   */
  const clear = Effect.fnUntraced(function* (job: LineageRef & Attempt) {
    const keys = yield* Stream.runCollect(repository.local.list(`${job.lineage}/base/${job.id}/`))
    if (!(yield* ledger.removeAttempt(job, job))) return
    yield* repository.local.remove(keys.map(({ key }) => key))
  })

  const run = Effect.fn("backups.base")(function* (
    job: ClaimedJob,
    destinationIds: ReadonlyArray<string>,
    tell: (progress: Progress) => void
  ) {
    const ref = { orgId: job.orgId, lineage: job.lineage }
    yield* ledger.ensure(ref, job.databaseUid)
    const key = yield* Effect.flatMap(
      ledger.keyOf(ref),
      Option.match({ onNone: () => Effect.fail(failed("The backups have no key")), onSome: Effect.succeed })
    )
    yield* orFailed(clear(job))
    const server = yield* orFailed(servers.inspect(job.databaseUid))
    const { port, lineage } = Option.getOrUndefined(server) ?? {}
    if (port === undefined) return yield* failed("The database has no server yet")
    if (lineage !== job.lineage)
      return yield* failed("The database's data folder was replaced by another one")

    const dataFolder = path.join(dataDir, "databases", job.databaseUid, "data")
    let stored = 0
    const copy = Effect.gen(function* () {
      const files = yield* backupFiles(dataFolder)
      if ((yield* freeBytes(dataDir)) - files.bytes < options.reserveBytes) {
        return yield* failed(
          `The disk has no room for a backup of ${Math.ceil(files.bytes / 1e6)} MB besides what must stay free`
        )
      }
      let done = 0
      tell({ step: "copying", done, total: files.bytes })
      for (const [index, part] of partsOf(files).entries()) {
        const object = yield* putSealed(
          repository.local,
          key,
          job.lineage,
          {
            name: `base/${job.id}/${String(index).padStart(5, "0")}`,
            backupId: job.id,
            finishedAt: null
          },
          () =>
            pack(dataFolder, part, (bytes) => {
              done += bytes
              tell({ step: "copying", done: Math.min(done, files.bytes), total: files.bytes })
            })
        )
        stored += object.storedBytes
        const { added } = yield* ledger.add(ref, [object], destinationIds, job)
        // Whatever is mixed of two attempts is not a state that the database ever had.
        if (added === 0) return yield* failed("Another process makes the backup by now")
      }
      return files.bytes
    })
    const end = yield* orFailed(withBackup({ socketDir, port }, copy))
    if (end.tablespaceMap.trim() !== "") {
      return yield* failed("The database has a tablespace outside of its folder, which is not supported")
    }
    tell({ step: "log", done: end.value, total: end.value })
    // The log until a moment after the backup: then the backup, and that moment, can be restored.
    yield* orFailed(repository.flush(job.orgId, job.databaseUid))
    const names = segmentsBetween(end.startSegment, end.stopSegment)
    const there = yield* ledger.known(ref, names).pipe(
      Effect.repeat({
        until: (known) => known.size === names.length,
        schedule: Schedule.spaced("50 millis")
      }),
      Effect.timeoutOption(options.segmentWaitMs)
    )
    if (Option.isNone(there))
      return yield* failed("Segments of the log that belong to the backup are missing")
    return {
      label: end.label,
      tablespaceMap: end.tablespaceMap,
      startSegment: end.startSegment,
      stopSegment: end.stopSegment,
      timeline: end.timeline,
      consistentAt: end.stoppedAt,
      storedBytes: stored
    }
  })

  return { run, clear }
})

/** Names of the objects of the segments between two of one timeline, both included. */
const segmentsBetween = (first: string, last: string): ReadonlyArray<string> => {
  const names: Array<string> = []
  const hex = (value: number) => value.toString(16).toUpperCase().padStart(8, "0")
  for (let number = numberOf(first); number <= numberOf(last); number++) {
    names.push(`wal/${hex(timelineOf(first))}${hex(Math.floor(number / 1024))}${hex(number % 1024)}`)
  }
  return names
}
