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
import { Host, HostError } from "#src/infra/Host.ts"
import { HydrationFault, type Run } from "#src/infra/Hydrations.ts"
import { type PostgresControlError, type PostgresEndpoint, tellServer } from "#src/infra/PostgresControl.ts"
import { PostgresServers } from "#src/infra/PostgresServers.ts"
import { type BackupEnd, backupFiles, withBackup } from "#src/infra/postgres-backup.ts"
import { PostgresBinaries } from "#src/infra/postgres-binaries.ts"
import { copyFiles } from "#src/infra/postgres-copy.ts"
import { serverFolders } from "#src/infra/postgres-folders.ts"
import { recover } from "#src/infra/postgres-recovery.ts"
import { appUser } from "#src/infra/postgres-settings.ts"
import { scramVerifier } from "#src/infra/scram.ts"
import type { BranchOrigin } from "./Sources.ts"

export const makeFill = Effect.gen(function* () {
  const host = yield* Host
  const programs = yield* PostgresBinaries
  const servers = yield* PostgresServers
  const { dataOf } = serverFolders(host.dataDir)

  const copyLive = Effect.fnUntraced(function* (origin: BranchOrigin, run: Run, log: string) {
    const endpoint = yield* Effect.mapError(servers.endpoint(origin.uid), unavailable)
    if (Option.isNone(endpoint)) return yield* unavailable({ message: "The source has no running server" })
    const from = dataOf(origin.uid)
    const copy = Effect.gen(function* () {
      const what = yield* backupFiles(from)
      yield* run.step("copy", what.bytes)
      yield* copyFiles({ from, into: run.data, what, owner: host.runAs, onBytes: run.advance })
    })
    const end = yield* withBackup(endpoint.value, copy, (stopped) =>
      Effect.flatMap(segmentsOf(from, stopped), (files) =>
        copyFiles({
          from: path.join(from, "pg_wal"),
          into: log,
          what: { folders: [], files },
          owner: host.runAs,
          onBytes: run.active,
          complete: true
        })
      )
    )
    yield* host.writeFile(path.join(run.data, "backup_label"), end.label)
  })

  return Effect.fnUntraced(
    function* (origin: BranchOrigin, source: BranchSource, run: Run) {
      const log = path.join(run.folder, "log")
      yield* host.directory(run.data)
      yield* host.directory(log)
      if (source.kind !== "current") {
        return yield* new HydrationFault({ code: "internal", message: "Nothing is known of such a source" })
      }
      yield* run.step("start")
      yield* copyLive(origin, run, log)
      yield* run.step("replay")
      // The source's password must open nothing here, not even until the branch's own is set.
      const verifier = yield* scramVerifier(Redacted.make(randomBytes(24).toString("base64")))
      yield* recover({
        data: run.data,
        log,
        scratch: run.folder,
        key: run.key,
        onSegments: counted(run),
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

const asFault = (error: HydrationFault | HostError | PostgresControlError): HydrationFault => {
  if (error._tag === "HydrationFault") return error
  if (error._tag === "PostgresControlError") return unavailable(error)
  const full = error.code === "ENOSPC" || error.code === "EDQUOT"
  return new HydrationFault({
    code: full ? "no_space" : "copy_failed",
    message: full ? "The disk is full" : error.message,
    cause: error
  })
}

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

/** The finished segments that belong to the copy. */
const segmentsOf = (data: string, { startSegment, stopSegment }: BackupEnd) =>
  Effect.tryPromise({
    try: async () =>
      (await fs.readdir(path.join(data, "pg_wal")))
        .filter((name) => /^[0-9A-F]{24}$/.test(name) && name >= startSegment && name <= stopSegment)
        .sort()
        .map((name) => ({ path: name, bytes: 0 })),
    catch: (cause) => new HostError({ message: "The log of the source cannot be read", cause })
  })
