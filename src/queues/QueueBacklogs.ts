/** What all queues hold, for measurements. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { countedBacklog } from "#schemas/queue.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface QueueBacklog {
  readonly orgId: string
  readonly uid: string
  /** All messages that it holds. */
  readonly messages: number
  /**
   * Those of them that were not given up: exact, unless more than {@link countedBacklog} of them were and more than that were
   * not, which is told as that many.
   */
  readonly waiting: number
  /** Of the oldest message that is not given up; 0 when there is none. */
  readonly oldestAgeSeconds: number
}

/** The oldest message is looked for among so many that came first and so many that are due first. */
const looked = 50

export class QueueBacklogs extends Context.Service<
  QueueBacklogs,
  { readonly all: Effect.Effect<ReadonlyArray<QueueBacklog>, StoreUnavailable> }
>()("svc/queues/QueueBacklogs") {
  static readonly layer = Layer.effect(
    QueueBacklogs,
    Effect.map(Db, ({ engine: sql }) =>
      QueueBacklogs.of({
        // Indexes: the primary keys of queue_backlog and queue_message, queue_message_failed, queue_message_due. Empty
        // queues, which most are, cost one look at their sums.
        all: repeatable(sql<QueueBacklog>`
          select q.org_id as "orgId", q.uid, greatest(held.messages, 0)::float8 as messages,
            greatest(coalesce(w.waiting, 0), 0)::float8 as waiting,
            greatest(0, coalesce(extract(epoch from now() - o.entered_at), 0))::float8 as "oldestAgeSeconds"
          from queue q
          cross join lateral (
            select coalesce(sum(b.messages), 0) as messages from queue_backlog b
            where b.org_id = q.org_id and b.queue_uid = q.uid) held
          left join lateral (
            select case when f.failed < ${countedBacklog}::int then held.messages - f.failed else (
                select count(*) from (select from queue_message m
                  where m.org_id = q.org_id and m.queue_uid = q.uid and not m.failed limit ${countedBacklog}::int) counted)
              end as waiting
            from (select count(*) as failed from (select from queue_message m
              where m.org_id = q.org_id and m.queue_uid = q.uid and m.failed limit ${countedBacklog}::int) counted) f
          ) w on held.messages > 0
          left join lateral (
            select min(entered_at) as entered_at from (
              (select m.entered_at, m.failed from queue_message m where m.org_id = q.org_id and m.queue_uid = q.uid
                order by m.id limit ${looked}::int)
              union all
              (select m.entered_at, false from queue_message m
                where m.org_id = q.org_id and m.queue_uid = q.uid and not m.failed
                order by m.due_at limit ${looked}::int)) first
            where not failed
          ) o on held.messages > 0`).pipe(Effect.withSpan("QueueBacklogs.all"))
      })
    )
  )
}
