/**
 * Proves a backup by restoring it: into a folder of its own, by a server that nobody else can reach. It has to start
 * and to come out of recovery, the application's database has to be there, and every page of every table and index has
 * to be sound. No statement enters the tenant's database, where the tenant's code could be waiting for a superuser.
 */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { AppConfig } from "#src/config.ts"
import { Host } from "#src/infra/host/Host.ts"
import { PostgresBinaries } from "#src/infra/postgres/PostgresBinaries.ts"
import { askServer, PostgresControlError } from "#src/infra/postgres/PostgresControl.ts"
import { endRecovery, recover } from "#src/infra/postgres/recovery.ts"
import { freeBytes } from "./archive/shipping.ts"
import { asFailed, BackupFailed } from "./base.ts"
import { systemFault } from "./error-messages.ts"
import { type ClaimedJob, Jobs, type Progress } from "./Jobs.ts"
import { BackupOptions } from "./options.ts"
import { checkPages } from "./repository/checksums.ts"
import { Repository } from "./repository/Repository.ts"

export const makeDrill = Effect.gen(function* () {
  const repository = yield* Repository
  const jobs = yield* Jobs
  const host = yield* Host
  const programs = yield* PostgresBinaries
  const { dataDir } = yield* AppConfig
  const options = yield* BackupOptions
  const root = path.join(dataDir, "drills")

  const failed = (message: string, cause?: unknown, again = true) =>
    new BackupFailed({ message, again, cause })
  const orFailed = Effect.mapError(asFailed)
  const foldersOf = (id: string) => {
    const scratch = path.join(root, id)
    return { scratch, data: path.join(scratch, "data"), log: path.join(scratch, "log"), key: id.slice(-12) }
  }

  /** Ends the server that a killed process may have left, and takes everything away. */
  const clear = Effect.fnUntraced(function* (id: string) {
    const { scratch, data, key } = foldersOf(id)
    yield* Effect.ignore(Effect.provideService(endRecovery(data, scratch, key), Host, host))
    yield* host.removeAll(scratch)
  })

  const handOver = (folder: string) =>
    Effect.tryPromise({
      try: async () => {
        if (host.runAs === undefined) return
        const { uid, gid } = host.runAs
        await fs.chown(folder, uid, gid)
        for (const entry of await fs.readdir(folder, { withFileTypes: true, recursive: true })) {
          await fs.chown(path.join(entry.parentPath, entry.name), uid, gid)
        }
      },
      catch: (cause) => failed("The restored files cannot be handed to the server", cause)
    })

  const run = Effect.fn("backups.drill")(function* (job: ClaimedJob, tell: (progress: Progress) => void) {
    const { scratch, data, log, key } = foldersOf(job.id)
    const backupId = job.backupId
    if (backupId === null) return yield* failed("There is no backup to restore", undefined, false)
    const recovery = yield* Effect.mapError(
      repository.choose({ orgId: job.orgId, lineage: job.lineage }, { kind: "backup", backupId }),
      (error) => (error._tag === "OutsideWindow" ? failed(error.message, error, false) : asFailed(error))
    )
    if ((yield* freeBytes(dataDir)) - recovery.baseBytes < options.reserveBytes) {
      return yield* failed("The disk has no room to restore the backup besides what must stay free")
    }
    yield* orFailed(clear(job.id))
    yield* Effect.gen(function* () {
      for (const folder of [root, scratch, data, log]) yield* orFailed(host.directory(folder))
      const total = recovery.baseBytes
      yield* orFailed(
        repository.fetchBase(recovery, data, (done) => tell({ step: "restoring", done, total }))
      )
      yield* orFailed(
        repository.fetchWal(recovery, log, (done) => tell({ step: `log ${done}`, done: total, total }))
      )
      yield* orFailed(host.writeFile(path.join(data, "backup_label"), recovery.backup.label))
      yield* handOver(scratch)
      tell({ step: "recovering", done: total, total })
      yield* recover({
        data,
        log,
        scratch,
        key,
        durable: false,
        onSegments: (count) => tell({ step: `recovering ${count}`, done: total, total }),
        whileOpen: (endpoint) =>
          Effect.flatMap(askServer(endpoint), (live) =>
            live._tag === "Some" && live.value.database
              ? Effect.void
              : Effect.fail(
                  new PostgresControlError({
                    message: "The restored server does not have the application's database",
                    code: "drill"
                  })
                )
          )
      }).pipe(Effect.provideService(Host, host), Effect.provideService(PostgresBinaries, programs), orFailed)
      let checked = 0
      const { damaged } = yield* Effect.tryPromise({
        try: (signal) =>
          checkPages(data, signal, (bytes) => {
            checked += bytes
            tell({ step: "checking", done: Math.min(checked, total), total })
          }),
        catch: (cause) => failed(`The restored files cannot be read: ${systemFault(cause)}`, cause)
      })
      if (damaged !== undefined) {
        return yield* failed(
          `The backup holds a damaged page (${damaged}): the database itself may be damaged`,
          undefined,
          false
        )
      }
    }).pipe(Effect.ensuring(Effect.ignore(clear(job.id))))
  })

  return {
    run,
    /** What belongs to no drill that goes on. */
    tidy: Effect.gen(function* () {
      const names = yield* Effect.promise(() => fs.readdir(root).catch(() => []))
      if (names.length === 0) return
      // Asked after the look: what was begun since is not in it.
      const open = yield* jobs.open
      for (const name of names) if (!open.has(name)) yield* Effect.ignore(clear(name))
    })
  }
})
