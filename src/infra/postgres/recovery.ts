/**
 * Recovers a copied data folder: replays the log that is staged beside it up to an instant or to its end, until the
 * server is out of recovery, and stops it. The server listens on a Unix socket alone and has no log archive, so
 * nobody but the control plane ever reaches it. It does not wait for the disk either: a folder whose recovery was cut
 * off is thrown away, and one that is kept is made durable at the end, at once.
 * (PostgreSQL documentation, "Recovering Using a Continuous Archive Backup".)
 */
import * as fs from "node:fs/promises"
import * as os from "node:os"
import * as path from "node:path"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import { makeDurable } from "../host/durable.ts"
import { Host, type HostError } from "../host/Host.ts"
import { oomScores } from "../host/server-limits.ts"
import { PostgresBinaries } from "./PostgresBinaries.ts"
import { askServer, type PostgresControlError, type PostgresEndpoint } from "./PostgresControl.ts"
import { quoted, renderIdentities, shellWord, socketAccess } from "./settings.ts"

export class RecoveryError extends Schema.TaggedError<RecoveryError>()("RecoveryError", {
  message: Schema.String,
  /** The end of the server's log. */
  log: Schema.String,
  cause: Schema.optionalKey(Schema.Defect())
}) {}

export interface RecoveryOptions {
  /** Data folder with a `backup_label`, owned by the servers' user. */
  readonly data: string
  /** Folder of plain segments and history files; it may be empty. */
  readonly log: string
  /** Folder for configuration and messages, removed by whoever made it. Its path must be in no other server's. */
  readonly scratch: string
  /** Nothing that was committed at this instant or later is in the result. Absent: to the end of the log. */
  readonly before?: Date
  /** Short and unique: names the folder of the socket. */
  readonly key: string
  /** Whether the result is to outlive the machine's fall. */
  readonly durable: boolean
  /** Told how many segments have been replayed, each time it looks. */
  readonly onSegments?: (count: number) => void
  /** Told that it is at work, where there is nothing to count. */
  readonly onActive?: () => void
  /** Runs while the recovered server is open, before anybody else can reach it. */
  readonly whileOpen?: (endpoint: PostgresEndpoint) => Effect.Effect<void, PostgresControlError>
}

/** A recovery that writes nothing into its log for so long makes no progress. */
const stallMs = 300_000
const port = 5432
/** What the server says when nothing was committed after the instant. */
const endedBefore = "recovery ended before configured recovery target was reached"

/** Folder of the socket, so that what a killed control plane left can be found. */
const recoverySocket = (host: Host["Service"], key: string) => path.join(host.socketDir, `r${key}`)

export const recover = Effect.fn("recover")(function* (options: RecoveryOptions) {
  const outcome = yield* attempt(options, options.before)
  // The log is shorter than the instant is late: all of it belongs to the result.
  if (outcome !== "open") yield* attempt(options, undefined)
  if (options.durable)
    yield* Effect.mapError(
      makeDurable(options.data, options.onActive),
      (cause) => new RecoveryError({ message: cause.message, log: "", cause })
    )
})

const attempt = Effect.fnUntraced(function* (options: RecoveryOptions, before: Date | undefined) {
  const host = yield* Host
  const programs = yield* PostgresBinaries
  const { data, scratch } = options
  const socketDir = recoverySocket(host, options.key)
  const endpoint: PostgresEndpoint = { socketDir, port }
  const logFile = path.join(scratch, "recovery.log")
  const broken = (message: string) => (cause: HostError | PostgresControlError) =>
    new RecoveryError({ message: `${message}: ${cause.message}`, log: "", cause })

  yield* Effect.gen(function* () {
    yield* host.directory(socketDir)
    yield* host.directory(scratch)
    yield* host.removeAll(logFile)
    const own = os.userInfo().username
    const systemUsers = [...new Set([own, ...(host.runAs === undefined ? [] : [host.runAs.name])])]
    yield* host.writeFile(path.join(scratch, "pg_hba.conf"), socketAccess)
    yield* host.writeFile(path.join(scratch, "pg_ident.conf"), renderIdentities({ systemUsers }))
    yield* host.writeFile(path.join(scratch, "postgresql.conf"), configOf(options, socketDir, before))
    yield* host.writeFile(path.join(data, "recovery.signal"), "")
  }).pipe(Effect.mapError(broken("The recovery could not be prepared")))

  const tail = Effect.map(
    Effect.orElseSucceed(host.readFile(logFile), () => Option.none<string>()),
    (text) => Option.getOrElse(text, () => "")
  )
  const failed = Effect.fnUntraced(function* (message: string) {
    const text = yield* tail
    const reason = text.split("\n").findLast((line) => /FATAL|PANIC|ERROR/.test(line))
    return yield* new RecoveryError({
      message:
        reason === undefined ? message : `${message}: ${reason.replace(/^.*?(FATAL|PANIC|ERROR): */, "")}`,
      log: text.slice(-2_000)
    })
  })

  return yield* Effect.acquireUseRelease(
    host
      .spawn({
        command: programs.postgres,
        args: ["-D", scratch],
        cwd: scratch,
        logFile,
        oomScore: oomScores.server
      })
      .pipe(Effect.mapError(broken("The recovery could not be started"))),
    Effect.fnUntraced(function* (pid) {
      let [activeAt, size] = [yield* Clock.currentTimeMillis, -1]
      let looks = 0
      const look = Effect.gen(function* () {
        looks++
        const live = (yield* isOpen(data))
          ? yield* Effect.orElseSucceed(askServer(endpoint), () => Option.none())
          : Option.none()
        if (Option.isSome(live) && !live.value.recovering) return "open" as const
        if (!(yield* host.isRunning(pid, scratch))) return "ended" as const
        const text = yield* tail
        options.onSegments?.(text.match(/restored log file "[0-9A-F]{24}"/g)?.length ?? 0)
        const now = yield* Clock.currentTimeMillis
        if (text.length !== size) [activeAt, size] = [now, text.length]
        return now - activeAt > stallMs ? ("stalled" as const) : ("waiting" as const)
      })
      const state = yield* Effect.repeat(look, {
        until: (one) => one !== "waiting",
        // Most are done at once; the messages of a long one take a while to read.
        schedule: Schedule.addDelay(Schedule.forever, () => Effect.succeed(looks < 100 ? 15 : 250))
      })
      if (state === "stalled") return yield* failed("The recovery makes no progress")
      if (state === "ended") {
        if (before !== undefined && (yield* tail).includes(endedBefore)) return "short" as const
        return yield* failed("The recovery ended early")
      }
      if (options.whileOpen !== undefined) {
        yield* Effect.mapError(options.whileOpen(endpoint), broken("The recovered server did not answer"))
      }
      // Its checkpoint makes the folder one that starts without recovery.
      yield* host.kill(pid, "SIGINT")
      if (!(yield* goneWithin(host, pid, scratch, 300)))
        return yield* failed("The recovered server does not stop")
      yield* Effect.mapError(host.removeAll(path.join(data, "backup_label.old")), broken("Cannot clean up"))
      return "open" as const
    }),
    (pid) =>
      Effect.gen(function* () {
        yield* end(host, pid, scratch)
        yield* Effect.ignore(host.removeAll(socketDir))
      })
  )
})

/** The server says in its lock file how far it is; asking it before that is in vain. */
const isOpen = (data: string) =>
  Effect.promise(() =>
    fs.readFile(path.join(data, "postmaster.pid"), "utf8").then(
      (text) => text.split("\n")[7]?.trim() === "ready",
      () => false
    )
  )

const goneWithin = (host: Host["Service"], pid: number, marker: string, seconds: number) =>
  host
    .isRunning(pid, marker)
    .pipe(
      Effect.repeat({ until: (running) => !running, schedule: Schedule.spaced("10 millis") }),
      Effect.timeoutOption(`${seconds} seconds`),
      Effect.map(Option.isSome)
    )

const end = Effect.fnUntraced(function* (host: Host["Service"], pid: number, marker: string) {
  if (!(yield* host.isRunning(pid, marker))) return
  yield* host.kill(pid, "SIGQUIT")
  if (yield* goneWithin(host, pid, marker, 10)) return
  yield* host.kill(pid, "SIGKILL")
  yield* goneWithin(host, pid, marker, 10)
})

/** Ends the recovery that a killed control plane left running, and removes its socket. */
export const endRecovery = Effect.fn("endRecovery")(function* (data: string, scratch: string, key: string) {
  const host = yield* Host
  const text = yield* Effect.promise(() =>
    fs.readFile(path.join(data, "postmaster.pid"), "utf8").catch(() => "")
  )
  const pid = Number(text.split("\n", 1)[0])
  if (Number.isInteger(pid) && pid > 1) yield* end(host, pid, scratch)
  yield* host.removeAll(recoverySocket(host, key))
})

const configOf = (options: RecoveryOptions, socketDir: string, before: Date | undefined): string => {
  const { data, log, scratch } = options
  return `${[
    `data_directory = ${quoted(data)}`,
    `hba_file = ${quoted(path.join(scratch, "pg_hba.conf"))}`,
    `ident_file = ${quoted(path.join(scratch, "pg_ident.conf"))}`,
    "listen_addresses = ''",
    `port = ${port}`,
    `unix_socket_directories = ${quoted(socketDir)}`,
    "unix_socket_permissions = 0700",
    // Opens only out of recovery, and asks for no setting to be as large as on the source.
    "hot_standby = off",
    "max_connections = 10",
    "shared_buffers = '32MB'",
    "max_wal_size = 1GB",
    "io_method = sync",
    "fsync = off",
    "archive_mode = off",
    "autovacuum = off",
    "max_prepared_transactions = 0",
    `restore_command = ${quoted(`cp ${shellWord(`${log}/`)}%f %p`)}`,
    ...(before === undefined
      ? []
      : [
          // By its offset: names of zones, and Z is one, are not known yet when this is read.
          `recovery_target_time = ${quoted(before.toISOString().replace("Z", "+00"))}`,
          "recovery_target_inclusive = off",
          "recovery_target_action = 'promote'"
        ]),
    "log_min_messages = log",
    "log_statement = none",
    "log_min_error_statement = panic",
    "timezone = 'UTC'"
  ].join("\n")}\n`
}
