/**
 * A copy of a running server's folder that can be recovered: the protocol of PostgreSQL's documentation ("Making a
 * Base Backup Using the Low Level API"), without a policy of where the copy goes.
 */
import { randomBytes } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import postgres from "postgres"
import { codeOf } from "../error-code.ts"
import { HostError } from "../host/Host.ts"
import { PostgresControlError, type PostgresEndpoint } from "./PostgresControl.ts"
import { controlDatabase, controlUser } from "./settings.ts"

export interface BackupEnd {
  /** Content of the file `backup_label`, without which the copy must never be started. */
  readonly label: string
  /** Content of the file `tablespace_map`; empty: there is none. */
  readonly tablespaceMap: string
  readonly startLsn: string
  readonly stopLsn: string
  /** Names of the first and the last segment of the log that recovery needs. */
  readonly startSegment: string
  readonly stopSegment: string
  readonly timeline: number
  /** The copy can be recovered to any moment from here on, by the server's clock. */
  readonly stoppedAt: Date
}

/** A checkpoint comes first, which writes everything that is in memory. */
const startSeconds = 300
const stopSeconds = 60

/**
 * Runs `use`, which copies the folder, while the server is in backup mode. `collect` runs after its end and still
 * before the server may remove any segment of the log since its beginning: it can take them out of `pg_wal`.
 *
 * One connection holds all of it. When it is lost, or this is interrupted, the server ends the backup by itself and
 * gives up the slot; the copy is then worth nothing and this fails.
 */
export const withBackup = <A, E, R, B = void, E2 = never, R2 = never>(
  endpoint: PostgresEndpoint,
  use: Effect.Effect<A, E, R>,
  collect?: (end: BackupEnd) => Effect.Effect<B, E2, R2>
): Effect.Effect<
  BackupEnd & { readonly value: A; readonly collected: B | undefined },
  E | E2 | PostgresControlError,
  R | R2
> =>
  Effect.acquireUseRelease(
    Effect.sync(() => connect(endpoint)),
    (sql) =>
      Effect.gen(function* () {
        const name = `svc_backup_${randomBytes(8).toString("hex")}`
        yield* ask(startSeconds, () => sql`select pg_create_physical_replication_slot(${name}, true, true)`)
        yield* ask(startSeconds, () => sql`select pg_backup_start(${name}, true)`)
        const value = yield* use
        const rows = yield* ask(
          stopSeconds,
          () =>
            // Archived or not: whoever needs the segments waits for them.
            sql`select lsn::text as "stopLsn", labelfile as label, spcmapfile as "tablespaceMap",
                pg_walfile_name(lsn - 1) as "stopSegment",
                extract(epoch from clock_timestamp())::float8 * 1000 as "stoppedAt"
              from pg_backup_stop(false)`
        )
        const stopped = yield* decodeStop(rows[0]).pipe(
          Effect.mapError((cause) =>
            refused("The server's answer to the end of a backup is not understood", cause)
          )
        )
        const end: BackupEnd = { ...stopped, ...(yield* readLabel(stopped.label)) }
        const collected = collect === undefined ? undefined : yield* collect(end)
        return { ...end, value, collected }
      }),
    (sql) => Effect.promise(() => sql.end({ timeout: 0 }).catch(() => {}))
  )

/**
 * Without `reserve` or a transaction, in which this driver would end the process when the server dies. A connection
 * that was lost meanwhile is opened anew by the next statement, and that one fails: no backup is in progress there.
 */
const connect = (endpoint: PostgresEndpoint) =>
  postgres({
    host: endpoint.socketDir,
    port: endpoint.port,
    database: controlDatabase,
    username: controlUser,
    max: 1,
    idle_timeout: 0,
    max_lifetime: null,
    connect_timeout: 10,
    prepare: false,
    fetch_types: false,
    onnotice: () => {},
    connection: { application_name: "svc backup", search_path: "pg_catalog, pg_temp" }
  })

const Stopped = Schema.Struct({
  stopLsn: Schema.String,
  label: Schema.String,
  tablespaceMap: Schema.NullOr(Schema.String),
  stopSegment: Schema.String,
  stoppedAt: Schema.Number
})
const decodeStop = (row: unknown) =>
  Effect.map(Schema.decodeUnknownEffect(Stopped)(row), (stopped) => ({
    ...stopped,
    tablespaceMap: stopped.tablespaceMap ?? "",
    // Up: a commit of the same millisecond may come before the end of the backup.
    stoppedAt: new Date(Math.ceil(stopped.stoppedAt) + 1)
  }))

/** The label says where the log begins that belongs to the copy. */
const readLabel = (label: string) => {
  const start = /^START WAL LOCATION: (\S+) \(file ([0-9A-F]{24})\)$/m.exec(label)
  const timeline = /^START TIMELINE: (\d+)$/m.exec(label)
  return start?.[1] === undefined || start[2] === undefined || timeline?.[1] === undefined
    ? Effect.fail(refused("The label of a backup is not understood", label))
    : Effect.succeed({ startLsn: start[1], startSegment: start[2], timeline: Number(timeline[1]) })
}

const refused = (message: string, cause: unknown) =>
  new PostgresControlError({ message, code: "backup", cause })

const ask = <A>(seconds: number, run: () => PromiseLike<A>): Effect.Effect<A, PostgresControlError> =>
  Effect.tryPromise({
    try: async () => await run(),
    catch: (cause) =>
      new PostgresControlError({
        message: `The database server refused a backup: ${cause instanceof Error ? cause.message : String(cause)}`,
        code: codeOf(cause) ?? "unknown",
        cause
      })
  }).pipe(
    Effect.timeoutOrElse({
      duration: `${seconds} seconds`,
      orElse: () =>
        Effect.fail(
          new PostgresControlError({
            message: "The database server did not answer a request for a backup in time",
            code: "timeout"
          })
        )
    })
  )

/**
 * Commits something and ends the segment of the log that holds it. Once that segment is kept somewhere, every commit
 * that was acknowledged before `at` is kept as well.
 */
export const switchLog = (
  endpoint: PostgresEndpoint
): Effect.Effect<{ readonly segment: string; readonly at: Date }, PostgresControlError> =>
  Effect.acquireUseRelease(
    Effect.sync(() => connect(endpoint)),
    (sql) =>
      Effect.gen(function* () {
        // Without it an idle server has nothing to end, and a recovery to this moment no commit after it to stop at.
        const before = yield* ask(
          stopSeconds,
          () => sql`select extract(epoch from clock_timestamp())::float8 * 1000 as at`
        )
        yield* ask(stopSeconds, () => sql`select pg_logical_emit_message(true, 'svc', '')`)
        const after = yield* ask(
          stopSeconds,
          () => sql`select pg_walfile_name(pg_switch_wal() - 1) as segment`
        )
        const { at, segment } = yield* decodeSwitch({ ...before[0], ...after[0] }).pipe(
          Effect.mapError((cause) =>
            refused("The server's answer to a switch of its log is not understood", cause)
          )
        )
        return { segment, at: new Date(Math.floor(at)) }
      }),
    (sql) => Effect.promise(() => sql.end({ timeout: 0 }).catch(() => {}))
  )
const decodeSwitch = Schema.decodeUnknownEffect(Schema.Struct({ at: Schema.Number, segment: Schema.String }))

export interface BackupFiles {
  /** Folders, parents first, also those whose content is left out: a server needs them to be there. */
  readonly folders: ReadonlyArray<string>
  /** Files by their paths in the folder; the control file comes last. Sizes are of now: files grow and go. */
  readonly files: ReadonlyArray<{ readonly path: string; readonly bytes: number }>
  readonly bytes: number
}

/** Folders of which only the name is copied: what is in them is made anew by recovery, or by the server's start. */
const emptied = new Set([
  "pg_wal",
  "pg_replslot",
  "pg_dynshmem",
  "pg_notify",
  "pg_serial",
  "pg_snapshots",
  "pg_stat_tmp",
  "pg_subtrans"
])
/** Files at the top that belong to the running server, or to an earlier recovery of it. */
const ownFiles = new Set([
  "postmaster.pid",
  "postmaster.opts",
  "backup_label",
  "backup_label.old",
  "tablespace_map",
  "tablespace_map.old",
  "recovery.signal",
  "standby.signal",
  "backup_manifest",
  "current_logfiles"
])
const controlFile = "global/pg_control"
/** Caches, temporary files and relations of sessions: of no use to another server. */
const isPassing = (name: string) => /^(pg_internal\.init|pgsql_tmp)/.test(name) || /^t\d+_\d+/.test(name)

/** What belongs into a copy of a server's data folder. A file that is gone when it is copied was not needed. */
export const backupFiles = (dataDir: string): Effect.Effect<BackupFiles, HostError> =>
  Effect.tryPromise({
    try: async () => {
      const folders: Array<string> = []
      const files: Array<{ path: string; bytes: number }> = []
      const walk = async (at: string): Promise<void> => {
        const found = await fs.readdir(path.join(dataDir, at), { withFileTypes: true }).catch(unlessGone)
        for (const entry of found ?? []) {
          const name = at === "" ? entry.name : `${at}/${entry.name}`
          if (isPassing(entry.name) || (at === "" && ownFiles.has(entry.name))) continue
          if (entry.isSymbolicLink() && !emptied.has(name)) {
            throw new Error(`${name} leads out of the data folder: tablespaces are not supported`)
          }
          if (emptied.has(name)) folders.push(name)
          else if (entry.isDirectory()) {
            folders.push(name)
            await walk(name)
          } else if (entry.isFile()) {
            const stat = await fs.stat(path.join(dataDir, name)).catch(unlessGone)
            if (stat !== undefined) files.push({ path: name, bytes: stat.size })
          }
        }
      }
      await walk("")
      files.sort((a, b) => Number(a.path === controlFile) - Number(b.path === controlFile))
      return { folders, files, bytes: files.reduce((sum, { bytes }) => sum + bytes, 0) }
    },
    catch: (cause) =>
      new HostError({
        message: `Cannot list the files of a database: ${cause instanceof Error ? cause.message : String(cause)}`,
        cause
      })
  })

const unlessGone = (error: NodeJS.ErrnoException): undefined => {
  if (error.code !== "ENOENT") throw error
}
