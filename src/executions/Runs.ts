/**
 * How executions go, as their reconciler keeps it. Every change carries the fencing number of the reconcile that makes
 * it, and none leaves an end that was reached.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as SqlError from "effect/sql/SqlError"
import type { Fragment } from "effect/sql/Statement"
import type { CleanupStatus, ExecutionErrorCode, ExecutionState } from "#schemas/execution.ts"
import { storableText } from "#src/storable.ts"
import { Db, repeatable, transaction } from "#src/store/Db.ts"
import { wakeReconciler } from "#src/store/work-rows.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface RunRef {
  readonly orgId: string
  readonly uid: string
}
export interface FencedRef extends RunRef {
  readonly fence: bigint
}

export interface Run {
  readonly status: ExecutionState
  readonly errorCode: ExecutionErrorCode | null
  readonly error: string | null
  readonly exitCode: number | null
  readonly begunAt: Date
  /** Memory of the host that it holds. */
  readonly roomMb: number | null
  /** When its turn came to fetch its image. */
  readonly turnAt: Date | null
  readonly imageId: string | null
  readonly imageDigest: string | null
  readonly containerMade: boolean
  readonly startedAt: Date | null
  readonly stopReason: "cancelled" | "timed_out" | null
  readonly stopAt: Date | null
  /** It was told. */
  readonly stopSent: boolean
  readonly lostSince: Date | null
  readonly finishedAt: Date | null
  readonly cleanupStatus: CleanupStatus
  readonly cleanupTries: number
  readonly logComplete: boolean
  /** Since who follows it last said so, by the store's clock: those of processes may differ. */
  readonly logOwnerAgeMs: number | null
}

export interface Ending {
  readonly status: Exclude<ExecutionState, "starting" | "running">
  readonly errorCode: ExecutionErrorCode | null
  readonly error: string | null
  readonly exitCode: number | null
  readonly startedAt: Date | null
  readonly finishedAt: Date
}

/** False: a later reconcile was here, or what was to be changed is over; nothing was done. */
type Change = Effect.Effect<boolean, StoreUnavailable>

/** Of all that want room on the host. */
const roomLock = 7_306_085_113
/** Pieces of a log that go at once. */
const batch = 5_000

export class Runs extends Context.Service<
  Runs,
  {
    readonly find: (ref: RunRef) => Effect.Effect<Option.Option<Run>, StoreUnavailable>
    readonly begin: (ref: FencedRef & { readonly projectId: string }) => Change
    /** Says that a reconcile is about to act; earlier ones change nothing from here on. */
    readonly claim: (ref: FencedRef) => Change
    /**
     * Takes so much of the memory that executions may have on this host. False also when there is not as much left; one
     * that needs more than all of it has it alone. What it took is free again once its container is gone.
     */
    readonly room: (ref: FencedRef, memoryMb: number, inAllMb: number) => Change
    /** Null: it waits for its turn again. */
    readonly turn: (ref: FencedRef, at: Date | null) => Change
    readonly pulled: (
      ref: FencedRef,
      image: { readonly id: string; readonly digest: string | null },
      at: Date
    ) => Change
    /** It is to be fetched again. */
    readonly imageGone: (ref: FencedRef) => Change
    readonly making: (ref: FencedRef) => Change
    readonly running: (ref: FencedRef, startedAt: Date) => Change
    readonly stopping: (ref: FencedRef, reason: "cancelled" | "timed_out", at: Date) => Change
    readonly stopSent: (ref: FencedRef) => Change
    /** Null: it answers again. */
    readonly lost: (ref: FencedRef, since: Date | null) => Change
    readonly end: (ref: FencedRef, ending: Ending) => Change
    readonly cleanup: (ref: FencedRef, status: CleanupStatus, tries: number) => Change
    readonly logsGivenUp: (ref: FencedRef) => Change
    /** With what it printed; some of it at a time. */
    readonly forget: (ref: FencedRef) => Change
    readonly wakeReconciler: (ref: RunRef) => Effect.Effect<void, StoreUnavailable>
    /** Of these, the ones that there is a run of. */
    readonly known: (refs: ReadonlyArray<RunRef>) => Effect.Effect<ReadonlySet<string>, StoreUnavailable>
    /** Of these, the ones that have not begun because their image is not there. */
    readonly wantingImage: (
      refs: ReadonlyArray<RunRef>
    ) => Effect.Effect<ReadonlySet<string>, StoreUnavailable>
  }
>()("svc/executions/Runs") {
  static readonly layer = Layer.effect(
    Runs,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const where = ({ orgId, uid, fence }: FencedRef) => sql`
        where org_id = ${orgId}::uuid and uid = ${uid}::uuid and fence <= ${fence}`
      const any = (rows: ReadonlyArray<unknown>) => rows.length > 0
      const change = (statement: Effect.Effect<ReadonlyArray<unknown>, SqlError.SqlError>) =>
        Effect.map(repeatable(statement), any)

      const among = Effect.fn("Runs.among")(function* (refs: ReadonlyArray<RunRef>, condition: Fragment) {
        const given = refs.map(({ orgId, uid }) => ({ orgId, uid }))
        const rows = yield* repeatable(sql<{ readonly uid: string }>`
          select e.uid from jsonb_to_recordset(${sql.json(given)}::jsonb) as g("orgId" uuid, uid uuid)
          join execution e on e.org_id = g."orgId" and e.uid = g.uid
          where ${condition}`)
        return new Set(rows.map(({ uid }) => uid))
      })

      return Runs.of({
        find: Effect.fn("Runs.find")(function* ({ orgId, uid }) {
          const [row] = yield* repeatable(sql<Run>`
            select status, error_code as "errorCode", error, exit_code as "exitCode", begun_at as "begunAt",
              room_mb as "roomMb", turn_at as "turnAt",
              image_id as "imageId", image_digest as "imageDigest", container_made as "containerMade",
              started_at as "startedAt", stop_reason as "stopReason", stop_at as "stopAt", stop_sent as "stopSent", lost_since as "lostSince",
              finished_at as "finishedAt", cleanup_status as "cleanupStatus", cleanup_tries as "cleanupTries",
              log_complete as "logComplete", extract(epoch from clock_timestamp() - log_owner_at)::float8 * 1000 as "logOwnerAgeMs"
            from execution where org_id = ${orgId}::uuid and uid = ${uid}::uuid`)
          return Option.fromUndefinedOr(row)
        }),
        begin: ({ orgId, uid, projectId, fence }) =>
          change(sql`
            insert into execution (org_id, uid, project_uid, fence)
            values (${orgId}::uuid, ${uid}::uuid, ${projectId}::uuid, ${fence})
            on conflict (org_id, uid) do update set fence = excluded.fence where execution.fence <= excluded.fence
            returning uid`),
        claim: (ref) => change(sql`update execution set fence = ${ref.fence} ${where(ref)} returning uid`),
        // Whoever comes second waits for the lock, and its statement then sees what the first one took.
        room: (ref, memoryMb, inAllMb) =>
          Effect.map(
            repeatable(
              transaction(
                sql,
                Effect.andThen(
                  sql`select pg_advisory_xact_lock(${roomLock}::bigint)`,
                  // Index: execution_holding.
                  sql`update execution set room_mb = ${memoryMb}::int ${where(ref)} and status = 'starting'
                    and (select coalesce(sum(room_mb), 0) from execution where room_mb is not null
                        and not (org_id = ${ref.orgId}::uuid and uid = ${ref.uid}::uuid))
                      <= greatest(0, ${inAllMb}::int - ${memoryMb}::int)
                    returning uid`
                )
              )
            ),
            any
          ),
        turn: (ref, at) =>
          change(sql`update execution set turn_at = ${at}::timestamptz ${where(ref)}
            and status = 'starting' returning uid`),
        pulled: (ref, { id, digest }, at) =>
          change(sql`update execution set image_id = ${id}, image_digest = ${digest}::text,
            turn_at = coalesce(turn_at, ${at}::timestamptz) ${where(ref)}
            and status = 'starting' returning uid`),
        imageGone: (ref) =>
          change(
            sql`update execution set image_id = null ${where(ref)} and status = 'starting' returning uid`
          ),
        making: (ref) =>
          change(
            sql`update execution set container_made = true ${where(ref)} and status = 'starting' returning uid`
          ),
        running: (ref, startedAt) =>
          change(sql`update execution set status = 'running', started_at = ${startedAt} ${where(ref)}
            and status = 'starting' returning uid`),
        stopping: (ref, reason, at) =>
          change(sql`update execution set stop_reason = ${reason}, stop_at = ${at} ${where(ref)}
            and finished_at is null and stop_at is null returning uid`),
        stopSent: (ref) => change(sql`update execution set stop_sent = true ${where(ref)} returning uid`),
        lost: (ref, since) =>
          change(sql`update execution set lost_since = ${since}::timestamptz ${where(ref)}
            and finished_at is null returning uid`),
        end: (ref, { status, errorCode, error, exitCode, startedAt, finishedAt }) =>
          change(sql`update execution set status = ${status}, error_code = ${errorCode}::text, error = ${error === null ? null : storableText(error)}::text,
            exit_code = ${exitCode}::int, started_at = ${startedAt}::timestamptz, finished_at = ${finishedAt}
            ${where(ref)} and finished_at is null returning uid`),
        cleanup: (ref, status, tries) =>
          change(sql`update execution set cleanup_status = ${status}, cleanup_tries = ${tries}::int,
            room_mb = case when ${status} = 'pending' then room_mb end ${where(ref)}
            and cleanup_status <> 'confirmed' returning uid`),
        logsGivenUp: (ref) =>
          change(sql`update execution set log_complete = true ${where(ref)} returning uid`),
        forget: Effect.fn("Runs.forget")(function* (ref) {
          const { orgId, uid } = ref
          const claimed = yield* repeatable(
            sql`update execution set fence = ${ref.fence}, log_complete = true ${where(ref)} returning uid`
          )
          if (claimed.length === 0) return false
          for (;;) {
            const gone = yield* repeatable(sql`
              delete from execution_log where ctid = any(array(
                select ctid from execution_log
                where org_id = ${orgId}::uuid and execution_uid = ${uid}::uuid limit ${batch}::int)) returning 1`)
            if (gone.length < batch) break
          }
          return any(yield* repeatable(sql`delete from execution ${where(ref)} returning uid`))
        }),
        wakeReconciler: (ref) => wakeReconciler(sql, ref),
        known: (refs) => among(refs, sql`true`),
        wantingImage: (refs) => among(refs, sql`e.status = 'starting' and e.image_id is null`)
      })
    })
  )
}
