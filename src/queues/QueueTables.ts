/**
 * A queue as it is made real: a row with the settings in force, and a row for each batch that may be under way. Its
 * reconciler keeps them as the specification wants them; those who deliver read nothing else.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { countedBacklog } from "#schemas/queue.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { answersIn } from "./answering.ts"

/** Settings in force, as they are stored. */
export interface QueueSettings {
  readonly paused: boolean
  readonly retention_seconds: number
  readonly dead_letter_uid: string | null
  readonly path: string | null
  readonly max_batch_size: number
  readonly max_batch_wait_seconds: number
  readonly max_retries: number
  readonly retry_delay_seconds: number
}

export interface QueueSeen {
  /** Absent: there are messages at most. */
  readonly settings: QueueSettings | undefined
  readonly slots: number
  readonly backlog: number
  readonly failed: number
  readonly oldest: Date | null
  /** The environment says where its app answers, or has one of ours. */
  readonly isAnswered: boolean
}

export interface QueuePlace {
  readonly orgId: string
  readonly uid: string
  readonly fence: bigint
  readonly environmentUid: string
}

/** Rows that one statement removes. */
const batch = 5_000

export class QueueTables extends Context.Service<
  QueueTables,
  {
    readonly inspect: (
      place: Omit<QueuePlace, "fence">
    ) => Effect.Effect<Option.Option<QueueSeen>, StoreUnavailable>
    /** Puts settings in force, with so many slots. False: a later run was here, and nothing was done. */
    readonly apply: (
      place: QueuePlace,
      settings: QueueSettings,
      slots: number
    ) => Effect.Effect<boolean, StoreUnavailable>
    /** Nobody delivers from it any more; then its messages go. False: a later run was here, and nothing was done. */
    readonly remove: (place: Omit<QueuePlace, "environmentUid">) => Effect.Effect<boolean, StoreUnavailable>
    /** The queue of this name in an environment. */
    readonly named: (
      orgId: string,
      environmentUid: string,
      name: string
    ) => Effect.Effect<Option.Option<string>, StoreUnavailable>
  }
>()("svc/queues/QueueTables") {
  static readonly layer = Layer.effect(
    QueueTables,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db

      interface Seen extends Omit<QueueSettings, "paused"> {
        readonly paused: boolean | null
        readonly slots: number
        readonly backlog: number
        readonly failed: number
        readonly oldest: Date | null
        readonly is_answered: boolean
        readonly keys: boolean
      }

      return QueueTables.of({
        // Indexes: primary keys, queue_message_due, queue_message_failed.
        inspect: Effect.fn("QueueTables.inspect")(function* ({ orgId, uid, environmentUid }) {
          const [row] = yield* repeatable(sql<Seen>`
            select q.paused, q.retention_seconds, q.dead_letter_uid, q.path, q.max_batch_size, q.max_batch_wait_seconds,
              q.max_retries, q.retry_delay_seconds,
              (select count(*)::int from queue_slot s where s.org_id = ${orgId}::uuid and s.queue_uid = ${uid}::uuid) as slots,
              (select count(*)::int from (select from queue_message m
                where m.org_id = ${orgId}::uuid and m.queue_uid = ${uid}::uuid and not m.failed
                limit ${countedBacklog}::int) counted) as backlog,
              (select count(*)::int from (select from queue_message m
                where m.org_id = ${orgId}::uuid and m.queue_uid = ${uid}::uuid and m.failed
                limit ${countedBacklog}::int) counted) as failed,
              (select m.entered_at from queue_message m where m.org_id = ${orgId}::uuid and m.queue_uid = ${uid}::uuid
                order by m.id limit 1) as oldest,
              exists (select from queue_key k where k.org_id = ${orgId}::uuid and k.queue_uid = ${uid}::uuid) as keys,
              ${answersIn(sql, sql`${orgId}::uuid`, sql`${environmentUid}::uuid`)} as is_answered
            from (select 1) one
            left join queue q on q.org_id = ${orgId}::uuid and q.uid = ${uid}::uuid`)
          if (row === undefined) return Option.none()
          const { paused, slots, backlog, failed, oldest, is_answered: isAnswered, keys, ...rest } = row
          if (paused === null && backlog + failed === 0 && !keys) return Option.none()
          const settings = paused === null ? undefined : { ...rest, paused }
          return Option.some({ settings, slots, backlog, failed, oldest, isAnswered })
        }),

        apply: Effect.fn("QueueTables.apply")(function* (
          { orgId, uid, fence, environmentUid },
          wanted,
          slots
        ) {
          const rows = yield* repeatable(sql`
            with applied as (
              insert into queue as q (org_id, uid, environment_uid, fence, paused, retention_seconds, dead_letter_uid, path,
                max_batch_size, max_batch_wait_seconds, max_retries, retry_delay_seconds)
              values (${orgId}::uuid, ${uid}::uuid, ${environmentUid}::uuid, ${fence}, ${wanted.paused},
                ${wanted.retention_seconds}, ${wanted.dead_letter_uid}::uuid, ${wanted.path}, ${wanted.max_batch_size},
                ${wanted.max_batch_wait_seconds}, ${wanted.max_retries}, ${wanted.retry_delay_seconds})
              on conflict (org_id, uid) do update set environment_uid = excluded.environment_uid,
                fence = excluded.fence, paused = excluded.paused, retention_seconds = excluded.retention_seconds,
                dead_letter_uid = excluded.dead_letter_uid, path = excluded.path,
                max_batch_size = excluded.max_batch_size, max_batch_wait_seconds = excluded.max_batch_wait_seconds,
                max_retries = excluded.max_retries, retry_delay_seconds = excluded.retry_delay_seconds
              where q.fence <= excluded.fence
              returning q.uid
            ), surplus as (
              delete from queue_slot s using applied
              where s.org_id = ${orgId}::uuid and s.queue_uid = applied.uid and s.slot > ${slots}::int
            ), added as (
              insert into queue_slot (org_id, queue_uid, slot)
              select ${orgId}::uuid, applied.uid, slot from applied cross join generate_series(1, ${slots}::int) slot
              on conflict do nothing
            )
            select pg_notify('svc_queue', uid::text) from applied`)
          return rows.length > 0
        }),

        remove: Effect.fn("QueueTables.remove")(function* ({ orgId, uid, fence }) {
          const [row] = yield* repeatable(sql<{ readonly newer: boolean }>`
            with gone as (
              delete from queue where org_id = ${orgId}::uuid and uid = ${uid}::uuid and fence <= ${fence}
            )
            select exists (select from queue
              where org_id = ${orgId}::uuid and uid = ${uid}::uuid and fence > ${fence}) as newer`)
          if (row?.newer !== false) return false
          for (const table of ["queue_message", "queue_key"]) {
            yield* repeatable(sql`
              delete from ${sql(table)} where ctid = any(array(
                select ctid from ${sql(table)} where org_id = ${orgId}::uuid and queue_uid = ${uid}::uuid
                limit ${batch}::int)) returning 1`).pipe(
              Effect.repeat({ while: (rows) => rows.length >= batch })
            )
          }
          return true
        }),

        // Index: resource_children.
        named: Effect.fn("QueueTables.named")(function* (orgId, environmentUid, name) {
          const [row] = yield* repeatable(sql<{ readonly uid: string }>`
            select uid from resource where org_id = ${orgId}::uuid and parent_uid = ${environmentUid}::uuid
              and kind = 'Queue' and name = ${name} and deleted_at is null and deletion_requested_at is null`)
          return row === undefined ? Option.none() : Option.some(row.uid)
        })
      })
    })
  )
}
