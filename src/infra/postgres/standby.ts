/**
 * Standbys of a managed Postgres server: servers of their own that begin as a full copy of the running primary and
 * follow its log over the Unix socket, each with a slot that keeps the log for it.
 * (PostgreSQL documentation, "Log-Shipping Standby Servers".)
 */
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { Host, type HostError } from "../host/Host.ts"
import { backupFiles, withBackup } from "./backup.ts"
import { copyFiles } from "./copy.ts"
import { serverFolders } from "./folders.ts"
import { HydrationFault, type Run } from "./Hydrations.ts"
import { askRows, PostgresControlError, type PostgresEndpoint } from "./PostgresControl.ts"
import { PostgresServers } from "./PostgresServers.ts"

/** More than any database may have: what is beyond the wanted number is removed. */
export const replicaNumbers = [1, 2] as const
/** The server's key: its folder's name, and what holds its port. */
export const standbyKey = (uid: string, number: number): string => `${uid}-${number}`
export const slotOf = (number: number): string => `svc_replica_${number}`

/** What a primary tells of one of its slots, and of who uses it. */
export const Follower = Schema.Struct({
  slot: Schema.String,
  /** Whether what it needs of the log is gone. */
  lost: Schema.Boolean,
  /** State of its connection; null: there is none. */
  connection: Schema.NullOr(Schema.String),
  /** What of the log it has not replayed; without a connection, what is kept for it. Null: nothing is. */
  lagBytes: Schema.NullOr(Schema.Number)
})
export type Follower = typeof Follower.Type

const decodeFollowers = Schema.decodeUnknownEffect(Schema.Array(Follower))
const notUnderstood = (cause: unknown) =>
  new PostgresControlError({
    message: "What a database server tells of replication is not understood",
    code: "unknown",
    cause
  })

export const askFollowers = (endpoint: PostgresEndpoint) =>
  askRows(
    endpoint,
    `select s.slot_name::text as slot, coalesce(s.wal_status = 'lost', false) as lost, r.state as connection,
       greatest(pg_wal_lsn_diff(pg_current_wal_lsn(), coalesce(r.replay_lsn, s.restart_lsn)), 0)::float8 as "lagBytes"
     from pg_replication_slots s left join pg_stat_replication r on r.pid = s.active_pid
     where starts_with(s.slot_name::text, 'svc_replica_') order by 1`
  ).pipe(Effect.flatMap((rows) => Effect.mapError(decodeFollowers(rows), notUnderstood)))

/** What a primary still has of its log. Places are numbers that can be compared with those of `Position`. */
export const Log = Schema.Struct({
  /** Where its timeline begins: what a standby has of an earlier one ends there, or is no part of this history. */
  begins: Schema.Number,
  oldest: Schema.Number,
  segmentBytes: Schema.Number
})
export type Log = typeof Log.Type
const decodeLog = Schema.decodeUnknownEffect(Schema.Tuple([Log]))

/** The last line of a timeline's history file says where it left the one before; the first timeline has no file. */
export const askLog = (endpoint: PostgresEndpoint) =>
  askRows(
    endpoint,
    `select coalesce(pg_wal_lsn_diff((select (regexp_matches(pg_read_file('pg_wal/' || history, true),
           '\\t([0-9A-F]+/[0-9A-F]+)\\t[^\\n]*\\n?$'))[1]::pg_lsn), '0/0'), 0)::float8 as begins,
       coalesce((select min(('x' || substr(name, 9, 8))::bit(32)::bigint * 4294967296
             + ('x' || substr(name, 17, 8))::bit(32)::bigint * size)
           from pg_ls_waldir() where name ~ '^[0-9A-F]{24}$'), 0)::float8 as oldest,
       size::float8 as "segmentBytes"
     from (select setting::bigint as size, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || '.history' as history
       from pg_settings where name = 'wal_segment_size') as log`
  ).pipe(
    Effect.flatMap((rows) => Effect.mapError(decodeLog(rows), notUnderstood)),
    Effect.map(([log]) => log)
  )

/**
 * Why a standby that has no connection can never have one; undefined: it can. One that is past the place where the
 * primary's timeline begins went on in another history. The log is asked for from the beginning of a segment, so one
 * that has the first half of a record, but not in the segment of that place, keeps what the primary has otherwise.
 */
export const whyNever = (
  { begins, oldest, segmentBytes }: Log,
  { received, replayed }: Pick<Position, "received" | "replayed">,
  /** Whether it has not followed since the timeline began. */
  before: boolean
): string | undefined => {
  const segmentOf = (place: number) => Math.floor(place / segmentBytes)
  if (before && (replayed > begins || segmentOf(received) > segmentOf(begins)))
    return "it has log that is no part of the primary's history"
  return segmentOf(received) * segmentBytes < oldest ? "the log that it needs is gone" : undefined
}

/** How far a standby is. */
export const Position = Schema.Struct({
  /** What it has of the log, replayed or not, as a number that can be compared. */
  received: Schema.Number,
  replayed: Schema.Number,
  receiving: Schema.Boolean,
  /** Age of the newest change that it has replayed; null: it has seen none since it started. */
  ageSeconds: Schema.NullOr(Schema.Number)
})
export type Position = typeof Position.Type
const decodePosition = Schema.decodeUnknownEffect(Schema.Tuple([Position]))

export const askPosition = (endpoint: PostgresEndpoint) =>
  askRows(
    endpoint,
    `select greatest(pg_wal_lsn_diff(pg_last_wal_receive_lsn(), '0/0'), pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0'),
         0)::float8 as received,
       coalesce(pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0'), 0)::float8 as replayed,
       exists (select from pg_stat_wal_receiver) as receiving,
       extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp())::float8 as "ageSeconds"`
  ).pipe(
    Effect.flatMap((rows) => Effect.mapError(decodePosition(rows), notUnderstood)),
    Effect.map(([position]) => position)
  )

/**
 * A copy of the running primary that follows it when it is started. The slot was made before, so the log since the
 * copy's beginning is kept, and comes over the stream.
 */
export const makeStandbyFill = Effect.gen(function* () {
  const host = yield* Host
  const servers = yield* PostgresServers
  const { dataOf } = serverFolders(host.dataDir)

  return Effect.fnUntraced(function* (uid: string, run: Run) {
    yield* host.directory(run.data)
    yield* run.step("start")
    const endpoint = yield* Effect.mapError(servers.endpoint(uid), unavailable)
    if (Option.isNone(endpoint)) return yield* unavailable({ message: "The primary has no running server" })
    const from = dataOf(uid)
    const copy = Effect.gen(function* () {
      const what = yield* backupFiles(from)
      yield* run.step("copy", what.bytes)
      yield* copyFiles({ from, into: run.data, what, owner: host.runAs, onBytes: run.advance })
    })
    const end = yield* withBackup(endpoint.value, copy)
    if (end.tablespaceMap.trim() !== "")
      return yield* unavailable({ message: "The primary has a tablespace outside of its folder" })
    yield* host.writeFile(path.join(run.data, "backup_label"), end.label)
    yield* host.writeFile(path.join(run.data, "standby.signal"), "")
  }, Effect.mapError(asFault))
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
