/**
 * What containers print, as it is kept: pieces in the order of the engine, each under the number of bytes before it. A
 * piece is added only where the last one ended, so that any number of followers lose nothing and keep nothing twice.
 * Features keep their logs in tables of their own, by this one implementation.
 */
import * as Effect from "effect/Effect"
import type { Fragment } from "effect/sql/Statement"
import { type Db, inOrg, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

/** What each piece of a log counts for besides its bytes: a row is more than what it holds. */
export const pieceWeight = 64

/** Whose log it is. */
export interface LogRef {
  readonly orgId: string
  readonly uid: string
}

export interface LogRecord {
  readonly position: string
  readonly stream: "stdout" | "stderr" | "system"
  readonly at: Date
  readonly content: Uint8Array
}
export type NewPiece = Omit<LogRecord, "position"> & { readonly position: number }

/** Where a follower is. */
export interface Following {
  readonly position: number
  readonly weight: number
  /** Time of the last piece that is kept, and how many bytes of that very time are: there a reading may begin. */
  readonly last: { readonly at: Date; readonly bytes: number } | null
}

/** Names of tables and columns. */
export interface LogTables {
  /** A row for each log, with `log_position`, `log_weight`, `log_complete`, `log_owner` and `log_owner_at`. */
  readonly of: string
  /** Its pieces, and the column that names the row they belong to. */
  readonly pieces: string
  readonly key: string
  /** Of the first table: set once nothing is printed any more. */
  readonly endedAt: string
  /**
   * Bytes that are kept, where each piece counts for its weight: of a log without end the first pieces go. Pieces then have
   * a column `weight`: that of all before. Absent: all are kept.
   */
  readonly ring?: number
}

export interface LogStore {
  /** Undefined: all of it is kept, or somebody else follows, or there is no such log. */
  readonly follow: (
    ref: LogRef,
    owner: string,
    patienceMs: number
  ) => Effect.Effect<Following | undefined, StoreUnavailable>
  /** Says that the follower is still there. False: it is the follower no more. */
  readonly beat: (ref: LogRef, owner: string) => Effect.Effect<boolean, StoreUnavailable>
  /** Is its follower no more; somebody else may follow at once. */
  readonly release: (ref: LogRef, owner: string) => Effect.Effect<void, StoreUnavailable>
  /** False: the log does not end where these begin any more; nothing was added. */
  readonly append: (
    ref: LogRef,
    owner: string,
    pieces: ReadonlyArray<NewPiece>,
    complete: boolean
  ) => Effect.Effect<boolean, StoreUnavailable>
  /** In order, from this position on. `ended`: nothing will be added any more. */
  readonly read: LogReader
  /** The last pieces, in order. */
  readonly tail: (ref: LogRef, limit: number) => Effect.Effect<ReadonlyArray<LogRecord>, StoreUnavailable>
}

export type LogReader = (
  ref: LogRef,
  from: string,
  limit: number
) => Effect.Effect<{ readonly pieces: ReadonlyArray<LogRecord>; readonly ended: boolean }, StoreUnavailable>

export const makeLogStore = (
  { api, engine: sql }: Db["Service"],
  { of, pieces: table, key, endedAt, ring }: LogTables
): LogStore => {
  const one = ({ orgId, uid }: LogRef) => sql`org_id = ${orgId}::uuid and uid = ${uid}::uuid`
  return {
    follow: Effect.fn("Logs.follow")(function* (ref, owner, patienceMs) {
      interface Row {
        readonly position: number
        readonly weight: number
        readonly at: Date | null
        readonly bytes: number
      }
      const [row] = yield* repeatable(sql<Row>`
        with here as (
          update ${sql(of)} set log_owner = ${owner}, log_owner_at = clock_timestamp()
          where ${one(ref)} and not log_complete and (log_owner is null or log_owner = ${owner}
            or log_owner_at < clock_timestamp() - make_interval(secs => ${patienceMs / 1000}::float8))
          returning org_id, uid, log_position::float8 as position, log_weight::float8 as weight
        )
        select h.position, h.weight, l.at,
          (select coalesce(sum(length(content)), 0)::float8 from ${sql(table)} t
            where t.org_id = h.org_id and t.${sql(key)} = h.uid and t.at = l.at and t.stream <> 'system') as bytes
        from here h left join lateral (
          select at from ${sql(table)} t where t.org_id = h.org_id and t.${sql(key)} = h.uid
          order by t.position desc limit 1) l on true`)
      if (row === undefined) return undefined
      const { position, weight, at, bytes } = row
      return { position, weight, last: at === null ? null : { at, bytes } }
    }),
    beat: (ref, owner) =>
      Effect.map(
        repeatable(sql`
          update ${sql(of)} set log_owner_at = clock_timestamp()
          where ${one(ref)} and log_owner = ${owner} and not log_complete
          returning uid`),
        (rows) => rows.length > 0
      ),
    release: (ref, owner) =>
      Effect.asVoid(
        repeatable(sql`
          update ${sql(of)} set log_owner = null, log_owner_at = null
          where ${one(ref)} and log_owner = ${owner} and not log_complete`)
      ),
    append: Effect.fn("Logs.append")(function* (ref, owner, pieces, complete) {
      const { orgId, uid } = ref
      const from = pieces[0]?.position ?? null
      const bytes = pieces.reduce(
        (sum, { stream, content }) => sum + (stream === "system" ? 0 : content.length),
        0
      )
      const weight = bytes + pieces.length * pieceWeight
      let before = 0
      const rows = pieces.map(({ position, stream, at, content }) => {
        const row = {
          position,
          stream,
          at: at.toISOString(),
          content: Buffer.from(content).toString("base64"),
          before
        }
        before += (stream === "system" ? 0 : content.length) + pieceWeight
        return row
      })
      const weighed = (column: Fragment) => (ring === undefined ? sql`` : column)
      const dropped =
        ring === undefined
          ? sql``
          : sql`, dropped as (
              delete from ${sql(table)} t using here
              where t.org_id = ${orgId}::uuid and t.${sql(key)} = ${uid}::uuid and t.position in (
                -- Index: the primary key. More than are added at once.
                select o.position from (
                  select position, weight from ${sql(table)} o
                  where o.org_id = ${orgId}::uuid and o.${sql(key)} = ${uid}::uuid
                  order by o.position limit ${pieces.length + 1_000}::int) o
                where coalesce(o.weight, 0) < here.log_weight - ${ring}::bigint)
            )`
      const done = yield* repeatable(sql`
        with here as (
          update ${sql(of)} set log_position = log_position + ${bytes}::bigint, log_owner_at = clock_timestamp(),
            log_weight = log_weight + ${weight}::bigint, log_complete = ${complete}
          where ${one(ref)} and log_owner = ${owner} and not log_complete
            and (${from}::bigint is null or log_position = ${from}::bigint)
          returning uid, log_weight
        ), added as (
          insert into ${sql(table)} (org_id, ${sql(key)}, position, stream, at, content${weighed(sql`, weight`)})
          select ${orgId}::uuid, ${uid}::uuid, p.position, p.stream, p.at, decode(p.content, 'base64')
            ${weighed(sql`, here.log_weight - ${weight}::bigint + p.before`)}
          from here, jsonb_to_recordset(${sql.json(rows)}::jsonb)
            as p(position bigint, stream text, at timestamptz, content text, before bigint)
        )${dropped}
        select uid from here`)
      return done.length > 0
    }),
    // Index: the primary key. The end is read first: what is there once it is reached is all.
    read: Effect.fn("Logs.read")(function* ({ orgId, uid }, from, limit) {
      const [state] = yield* repeatable(api<{ readonly ended: boolean }>`
        select log_complete and ${api(endedAt)} is not null as ended from ${api(of)}
        where org_id = ${orgId}::uuid and uid = ${uid}::uuid and ${inOrg(api, orgId)}`)
      const pieces = yield* repeatable(api<LogRecord>`
        select l.position::text as position, l.stream, l.at, l.content from ${api(table)} l
        where l.org_id = ${orgId}::uuid and ${api(key)} = ${uid}::uuid and position >= ${from}::bigint
          and ${inOrg(api, orgId)}
        order by l.position limit ${limit}::int`)
      return { pieces, ended: state?.ended === true && pieces.length < limit }
    }),
    // Index: the primary key.
    tail: Effect.fn("Logs.tail")(function* ({ orgId, uid }, limit) {
      const pieces = yield* repeatable(sql<LogRecord>`
        select l.position::text as position, l.stream, l.at, l.content from ${sql(table)} l
        where l.org_id = ${orgId}::uuid and ${sql(key)} = ${uid}::uuid
        order by l.position desc limit ${limit}::int`)
      return pieces.toReversed()
    })
  }
}
