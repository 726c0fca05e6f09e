/**
 * What executions print, as it is kept: pieces in the order of the engine, each under the number of bytes before it. A
 * piece is added only where the last one ended, so that any number of followers lose nothing and keep nothing twice.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Db, inOrg, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { pieceWeight } from "./options.ts"
import type { RunRef } from "./Runs.ts"

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
}

export class Logs extends Context.Service<
  Logs,
  {
    /** Undefined: all of it is kept, or somebody else follows, or there is no such execution. */
    readonly follow: (
      ref: RunRef,
      owner: string,
      patienceMs: number
    ) => Effect.Effect<Following | undefined, StoreUnavailable>
    /** Says that the follower is still there. False: it is the follower no more. */
    readonly beat: (ref: RunRef, owner: string) => Effect.Effect<boolean, StoreUnavailable>
    /** Is its follower no more; somebody else may follow at once. */
    readonly release: (ref: RunRef, owner: string) => Effect.Effect<void, StoreUnavailable>
    /** False: the log does not end where these begin any more; nothing was added. */
    readonly append: (
      ref: RunRef,
      owner: string,
      pieces: ReadonlyArray<NewPiece>,
      complete: boolean
    ) => Effect.Effect<boolean, StoreUnavailable>
    /** In order, from this position on. `ended`: nothing will be added any more. */
    readonly read: (
      ref: RunRef,
      from: string,
      limit: number
    ) => Effect.Effect<
      { readonly pieces: ReadonlyArray<LogRecord>; readonly ended: boolean },
      StoreUnavailable
    >
  }
>()("svc/executions/Logs") {
  static readonly layer = Layer.effect(
    Logs,
    Effect.gen(function* () {
      const { api, engine: sql } = yield* Db
      return Logs.of({
        follow: Effect.fn("Logs.follow")(function* ({ orgId, uid }, owner, patienceMs) {
          const [row] = yield* repeatable(sql<Following>`
            update execution set log_owner = ${owner}, log_owner_at = clock_timestamp()
            where org_id = ${orgId}::uuid and uid = ${uid}::uuid and not log_complete and (log_owner is null
              or log_owner = ${owner}
              or log_owner_at < clock_timestamp() - make_interval(secs => ${patienceMs / 1000}::float8))
            returning log_position::float8 as position, log_weight::float8 as weight`)
          return row
        }),
        beat: ({ orgId, uid }, owner) =>
          Effect.map(
            repeatable(sql`
              update execution set log_owner_at = clock_timestamp()
              where org_id = ${orgId}::uuid and uid = ${uid}::uuid and log_owner = ${owner} and not log_complete
              returning uid`),
            (rows) => rows.length > 0
          ),
        release: ({ orgId, uid }, owner) =>
          Effect.asVoid(
            repeatable(sql`
              update execution set log_owner = null, log_owner_at = null
              where org_id = ${orgId}::uuid and uid = ${uid}::uuid and log_owner = ${owner} and not log_complete`)
          ),
        append: Effect.fn("Logs.append")(function* ({ orgId, uid }, owner, pieces, complete) {
          const from = pieces[0]?.position ?? null
          const bytes = pieces.reduce(
            (sum, { stream, content }) => sum + (stream === "system" ? 0 : content.length),
            0
          )
          const rows = pieces.map(({ position, stream, at, content }) => ({
            position,
            stream,
            at: at.toISOString(),
            content: Buffer.from(content).toString("base64")
          }))
          const done = yield* repeatable(sql`
            with here as (
              update execution set log_position = log_position + ${bytes}::bigint, log_owner_at = clock_timestamp(),
                log_weight = log_weight + ${bytes + pieces.length * pieceWeight}::bigint, log_complete = ${complete}
              where org_id = ${orgId}::uuid and uid = ${uid}::uuid and log_owner = ${owner} and not log_complete
                and (${from}::bigint is null or log_position = ${from}::bigint)
              returning uid
            ), added as (
              insert into execution_log (org_id, execution_uid, position, stream, at, content)
              select ${orgId}::uuid, ${uid}::uuid, p.position, p.stream, p.at, decode(p.content, 'base64')
              from here, jsonb_to_recordset(${sql.json(rows)}::jsonb)
                as p(position bigint, stream text, at timestamptz, content text)
            )
            select uid from here`)
          return done.length > 0
        }),
        // Index: the primary key. The end is read first: what is there once it is reached is all.
        read: Effect.fn("Logs.read")(function* ({ orgId, uid }, from, limit) {
          const [state] = yield* repeatable(api<{ readonly ended: boolean }>`
            select log_complete and finished_at is not null as ended from execution
            where org_id = ${orgId}::uuid and uid = ${uid}::uuid and ${inOrg(api, orgId)}`)
          const pieces = yield* repeatable(api<LogRecord>`
            select l.position::text as position, l.stream, l.at, l.content from execution_log l
            where l.org_id = ${orgId}::uuid and execution_uid = ${uid}::uuid and position >= ${from}::bigint
              and ${inOrg(api, orgId)}
            order by l.position limit ${limit}::int`)
          return { pieces, ended: state?.ended === true && pieces.length < limit }
        })
      })
    })
  )
}
