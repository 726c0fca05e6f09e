/**
 * Where the data of a branch comes from: a copy of the running source, or a backup, then the log up to the wanted
 * instant. The result is a stopped server's data folder that nobody but the control plane has ever reached.
 */
import { randomBytes } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import type { BranchSource } from "#schemas/database-branch.ts"
import type { PlaceError } from "#src/backups/repository/Place.ts"
import { type OutsideWindow, Repository } from "#src/backups/repository/Repository.ts"
import { codeOf } from "#src/infra/error-code.ts"
import { Host, HostError } from "#src/infra/host/Host.ts"
import { type BackupEnd, backupFiles, withBackup } from "#src/infra/postgres/backup.ts"
import { copyFiles } from "#src/infra/postgres/copy.ts"
import { serverFolders } from "#src/infra/postgres/folders.ts"
import { HydrationFault, type Run } from "#src/infra/postgres/Hydrations.ts"
import { PostgresBinaries } from "#src/infra/postgres/PostgresBinaries.ts"
import {
  type PostgresControlError,
  type PostgresEndpoint,
  tellServer
} from "#src/infra/postgres/PostgresControl.ts"
import { PostgresServers } from "#src/infra/postgres/PostgresServers.ts"
import { recover } from "#src/infra/postgres/recovery.ts"
import { scramVerifier } from "#src/infra/postgres/scram.ts"
import { appUser } from "#src/infra/postgres/settings.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { BranchOrigin } from "./Sources.ts"

export const makeFill = Effect.gen(function* () {
  const host = yield* Host
  const programs = yield* PostgresBinaries
  const servers = yield* PostgresServers
  const repository = yield* Repository
  const { dataOf } = serverFolders(host.dataDir)

  const copyLive = Effect.fnUntraced(function* (origin: BranchOrigin, run: Run, log: string) {
    const endpoint = yield* Effect.mapError(servers.endpoint(origin.uid), unavailable)
    if (Option.isNone(endpoint)) return yield* unavailable({ message: "The source has no running server" })
    const from = dataOf(origin.uid)
    const copy = Effect.gen(function* () {
      const what = yield* backupFiles(from)
      yield* enoughRoom(run.data, what.bytes)
      yield* run.step("copy", what.bytes)
      yield* copyFiles({
        from,
        into: run.data,
        what,
        owner: host.runAs,
        onBytes: run.advance,
        durable: false
      })
    })
    const end = yield* withBackup(endpoint.value, copy, (stopped) => takeLog(from, log, stopped, run.active))
    yield* host.writeFile(path.join(run.data, "backup_label"), end.label)
    yield* handOver([log])
    return undefined
  })

  /** Answers the instant up to which the log is to be replayed; undefined: all that was fetched of it. */
  const restored = Effect.fnUntraced(function* (
    from: BranchOrigin & { readonly orgId: string },
    source: Exclude<BranchSource, { readonly kind: "current" }>,
    run: Run,
    log: string
  ) {
    if (source.kind === "replaced") {
      return yield* new HydrationFault({
        code: "source_gone",
        message: "What was replaced is not kept any more"
      })
    }
    const wanted =
      source.kind === "backup"
        ? ({ kind: "backup", backupId: source.backupId } as const)
        : ({ kind: "time", at: new Date(source.pointInTime) } as const)
    const recovery = yield* repository.reach({ orgId: from.orgId, lineage: from.lineage }, from.uid, wanted)
    yield* enoughRoom(run.data, recovery.baseBytes)
    yield* run.step("copy", recovery.baseBytes)
    let done = 0
    yield* repository.fetchBase(recovery, run.data, (now) => {
      run.advance(now - done)
      done = now
    })
    yield* run.step("log")
    yield* repository.fetchWal(recovery, log, run.active)
    yield* host.writeFile(path.join(run.data, "backup_label"), recovery.backup.label)
    yield* handOver([run.data, log])
    return recovery.target
  })

  /** What was fetched belongs to the control plane's user until here. */
  const handOver = (folders: ReadonlyArray<string>) =>
    Effect.tryPromise({
      try: async () => {
        if (host.runAs === undefined) return
        const { uid, gid } = host.runAs
        for (const folder of folders) {
          await fs.chown(folder, uid, gid)
          for (const entry of await fs.readdir(folder, { withFileTypes: true, recursive: true })) {
            await fs.chown(path.join(entry.parentPath, entry.name), uid, gid)
          }
        }
      },
      catch: (cause) => new HostError({ message: "The restored files cannot be handed to the server", cause })
    })

  return Effect.fnUntraced(
    function* (orgId: string, origin: BranchOrigin, source: BranchSource, run: Run) {
      const log = path.join(run.folder, "log")
      yield* host.directory(run.data)
      yield* host.directory(log)
      yield* run.step("begin")
      const before =
        source.kind === "current"
          ? yield* copyLive(origin, run, log)
          : yield* restored({ orgId, ...origin }, source, run, log)
      yield* run.step("replay")
      // The source's password must open nothing here, not even until the branch's own is set.
      const verifier = yield* scramVerifier(Redacted.make(randomBytes(24).toString("base64")))
      yield* recover({
        data: run.data,
        log,
        scratch: run.folder,
        key: run.key,
        durable: true,
        ...(before === undefined ? {} : { before }),
        onSegments: counted(run),
        onActive: run.active,
        whileOpen: lockOut(verifier)
      }).pipe(
        Effect.mapError(
          (error) => new HydrationFault({ code: "recovery_failed", message: error.message, cause: error })
        )
      )
    },
    Effect.provideService(Host, host),
    Effect.provideService(PostgresBinaries, programs),
    Effect.mapError(asFault)
  )
})

const unavailable = (error: { readonly message: string }) =>
  new HydrationFault({ code: "source_unavailable", message: error.message, cause: error })

type Trouble =
  | HydrationFault
  | HostError
  | OutsideWindow
  | PlaceError
  | PostgresControlError
  | StoreUnavailable

const asFault = (error: Trouble): HydrationFault => {
  const as = (code: HydrationFault["code"], message = error.message) =>
    new HydrationFault({ code, message, cause: error })
  switch (error._tag) {
    case "HydrationFault":
      return error
    case "PostgresControlError":
      return unavailable(error)
    case "OutsideWindow":
      return as("outside_window")
    case "StoreUnavailable":
      return as("store_unavailable")
    case "PlaceError":
      return as(error.reason === "no_space" ? "no_space" : "copy_failed")
    case "HostError":
      return error.code === "ENOSPC" || error.code === "EDQUOT"
        ? as("no_space", "The disk is full")
        : as("copy_failed")
  }
}

/** The disk is shared with servers that must go on writing. */
const reserveBytes = 256 * 1_048_576
const enoughRoom = (folder: string, bytes: number) =>
  Effect.flatMap(
    Effect.promise(() => fs.statfs(folder)),
    ({ bavail, bsize }) =>
      bavail * bsize - bytes >= reserveBytes
        ? Effect.void
        : Effect.fail(
            new HydrationFault({
              code: "no_space",
              message: `The copy takes ${Math.ceil(bytes / 1_048_576)} MiB, and the disk has no room for it`
            })
          )
  )

/** Reports progress when a segment more was replayed. */
const counted = (run: Run) => {
  let most = 0
  return (count: number) => {
    if (count > most) run.active()
    most = Math.max(most, count)
  }
}

const lockOut = (verifier: string) => (endpoint: PostgresEndpoint) =>
  tellServer(
    endpoint,
    `do $$ begin
      if exists (select from pg_roles where rolname = '${appUser}') then
        alter role ${appUser} password '${verifier}';
      end if;
    end $$`
  )

/** The finished segments that belong to the copy. Each record in them has its checksum, which recovery compares. */
const takeLog = (
  data: string,
  into: string,
  { startSegment, stopSegment }: BackupEnd,
  onSegment: () => void
) =>
  Effect.tryPromise({
    try: async (signal) => {
      const from = path.join(data, "pg_wal")
      for (const name of (await fs.readdir(from)).sort()) {
        if (!/^[0-9A-F]{24}$/.test(name) || name < startSegment || name > stopSegment) continue
        signal.throwIfAborted()
        await fs.copyFile(path.join(from, name), path.join(into, name))
        onSegment()
      }
    },
    catch: (cause) => {
      const code = codeOf(cause)
      const message = "The log of the source cannot be copied"
      return new HostError({ message, cause, ...(code === undefined ? {} : { code }) })
    }
  })
