/**
 * The queues as those who deliver see them: where something is due, a batch of it under a lease, and what became of it.
 *
 * A batch holds a slot of its queue and its messages until its lease ends, and is renewed while the app works on it.
 * Whoever vanishes leaves both to others then. Only the holder of a lease writes what became of the batch.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { answersIn } from "./answering.ts"

export interface QueueRef {
  readonly orgId: string
  readonly uid: string
}

export interface DueQueue extends QueueRef {
  /** Seconds until its first message is due; none or less: it is. */
  readonly firstIn: number
  /** Seconds that a batch which is not full waits beyond that. */
  readonly wait: number
}

export interface BatchMessage {
  readonly id: string
  /** JSON. */
  readonly body: string
  /** How often it was delivered, this time included. */
  readonly attempt: number
  readonly publishedAt: Date
}

export interface Batch extends QueueRef {
  readonly token: bigint
  readonly slot: number
  readonly environmentUid: string
  readonly path: string
  readonly full: boolean
  /** Milliseconds by the clock of the store. */
  readonly claimedAt: number
  readonly messages: ReadonlyArray<BatchMessage>
}

export type Outcome =
  | { readonly id: string; readonly outcome: "ack" }
  /** `delaySeconds` instead of what the queue says. */
  | { readonly id: string; readonly outcome: "retry"; readonly why: string; readonly delaySeconds?: number }
  /** Trying again would not help. */
  | { readonly id: string; readonly outcome: "reject"; readonly why: string }

export interface SettledBatch {
  /** Seconds until the next try of those that get one; undefined: none does. */
  readonly retryIn: number | undefined
  /** Messages that were given up. */
  readonly givenUp: number
}

/** Renewed well before it ends; what a process that was killed had claimed is delivered again after this. */
export const leaseSeconds = 15
/** Bytes of messages in a batch of more than one: what apps take in a request. */
export const batchBytes = 1024 * 1024

export class QueueDeliveries extends Context.Service<
  QueueDeliveries,
  {
    /** Queues that hold something and can be delivered from, all or those named. */
    readonly due: (
      uids: ReadonlyArray<string> | undefined
    ) => Effect.Effect<ReadonlyArray<DueQueue>, StoreUnavailable>
    /** Undefined: nothing is due, no slot is free, or the batch may still wait. */
    readonly claim: (queue: QueueRef) => Effect.Effect<Batch | undefined, StoreUnavailable>
    readonly renew: (batch: Batch) => Effect.Effect<void, StoreUnavailable>
    readonly settle: (
      batch: Batch,
      outcomes: ReadonlyArray<Outcome>
    ) => Effect.Effect<SettledBatch, StoreUnavailable>
    /** It was not delivered, or nobody will know: all of it is due again, for somebody else at once. */
    readonly giveBack: (batch: Batch, toOthers: boolean) => Effect.Effect<void, StoreUnavailable>
  }
>()("svc/queues/QueueDeliveries") {
  static readonly layer = Layer.effect(
    QueueDeliveries,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const ids = ({ messages }: Batch) => messages.map(({ id }) => id)
      const free = ({ orgId, uid, slot, token }: Batch) => sql`
        update queue_slot set lease_token = null, lease_until = '-infinity'
        where org_id = ${orgId}::uuid and queue_uid = ${uid}::uuid and slot = ${slot} and lease_token = ${token}`

      interface ClaimRow {
        readonly id: string
        readonly body: string
        readonly attempt: number
        readonly published_at: Date
        readonly token: bigint
        readonly slot: number
        readonly environment_uid: string
        readonly path: string
        readonly max_batch_size: number
        readonly claimed_at: number
      }

      return QueueDeliveries.of({
        // Index: queue_message_due, one look for each queue.
        due: (uids) =>
          repeatable(sql<DueQueue>`
            select q.org_id as "orgId", q.uid, extract(epoch from m.due_at - now())::float8 as "firstIn",
              q.max_batch_wait_seconds as wait
            from queue q cross join lateral (
              select due_at from queue_message m where m.org_id = q.org_id and m.queue_uid = q.uid and not m.failed
              order by due_at limit 1) m
            where not q.paused and q.path is not null
              and ${answersIn(sql, sql`q.org_id`, sql`q.environment_uid`)}
              ${uids === undefined ? sql`` : sql`and q.uid = any(${uids}::uuid[])`}`),

        // Index: queue_message_due. What is locked here is locked or moved on for everybody else. A claim that a crash
        // of the store forgets is made again, so it need not be on the disk before the app gets the batch.
        claim: Effect.fn("Deliveries.claim")(function* ({ orgId, uid }) {
          const rows = yield* repeatable(sql<ClaimRow>`
            with hasty as materialized (select set_config('synchronous_commit', 'off', true)),
            free as materialized (
              select s.slot, q.environment_uid, q.path, q.max_batch_size, q.max_batch_wait_seconds
              from queue_slot s join queue q on q.org_id = ${orgId}::uuid and q.uid = ${uid}::uuid
              where s.org_id = ${orgId}::uuid and s.queue_uid = ${uid}::uuid and s.lease_until <= now()
                and not q.paused and q.path is not null
              order by s.slot limit 1 for update of s skip locked
            ),
            token as materialized (select nextval('lease_token') as value from free),
            due as materialized (
              select m.ctid, m.id, m.due_at, octet_length(m.body) as bytes from queue_message m
              where m.org_id = ${orgId}::uuid and m.queue_uid = ${uid}::uuid and not m.failed and m.due_at <= now()
              order by m.due_at limit (select coalesce(max(max_batch_size), 0) from free)
              for update skip locked
            ),
            measured as (
              select ctid, row_number() over line as nth, sum(bytes) over line as total, count(*) over () as present,
                sum(bytes) over () as weight, min(due_at) over () as oldest
              from due window line as (order by due_at, id)
            ),
            chosen as materialized (
              select measured.ctid from measured cross join free
              where (nth = 1 or total <= ${batchBytes}::int)
                and (present >= max_batch_size or weight > ${batchBytes}::int
                  or oldest <= now() - make_interval(secs => max_batch_wait_seconds))
            ),
            taken as (
              update queue_message m set attempt = m.attempt + 1, lease_token = (select value from token),
                due_at = now() + make_interval(secs => ${leaseSeconds}::int)
              where m.org_id = ${orgId}::uuid and m.ctid = any(array(select ctid from chosen))
              returning m.id, m.body, m.attempt, m.published_at
            ),
            held as (
              update queue_slot s set lease_token = (select value from token),
                lease_until = now() + make_interval(secs => ${leaseSeconds}::int)
              from free where s.org_id = ${orgId}::uuid and s.queue_uid = ${uid}::uuid and s.slot = free.slot
                and exists (select from chosen)
            )
            select (select set_config from hasty), taken.*, (select value from token) as token, free.slot, free.environment_uid, free.path, free.max_batch_size,
              (extract(epoch from clock_timestamp()) * 1000)::float8 as claimed_at
            from taken cross join free order by taken.id`)
          const [first] = rows
          if (first === undefined) return undefined
          return {
            orgId,
            uid,
            token: first.token,
            slot: first.slot,
            environmentUid: first.environment_uid,
            path: first.path,
            full: rows.length >= first.max_batch_size,
            claimedAt: first.claimed_at,
            messages: rows.map((row) => ({
              id: row.id,
              body: row.body,
              attempt: row.attempt,
              publishedAt: row.published_at
            }))
          }
        }),

        renew: (batch) =>
          Effect.asVoid(
            repeatable(sql`
              with held as (
                update queue_slot set lease_until = now() + make_interval(secs => ${leaseSeconds}::int)
                where org_id = ${batch.orgId}::uuid and queue_uid = ${batch.uid}::uuid and slot = ${batch.slot}
                  and lease_token = ${batch.token}
              )
              update queue_message set due_at = now() + make_interval(secs => ${leaseSeconds}::int)
              where org_id = ${batch.orgId}::uuid and queue_uid = ${batch.uid}::uuid and id = any(${ids(batch)}::uuid[])
                and lease_token = ${batch.token}`)
          ),

        settle: Effect.fn("Deliveries.settle")(function* (batch, outcomes) {
          const { orgId, uid, token } = batch
          const kept = outcomes.filter((one) => one.outcome !== "ack")
          const acknowledged = outcomes.filter((one) => one.outcome === "ack").map(({ id }) => id)
          const acked = sql`
            delete from queue_message where org_id = ${orgId}::uuid and queue_uid = ${uid}::uuid
              and id = any(${acknowledged}::uuid[]) and lease_token = ${token}`
          if (kept.length === 0) {
            yield* repeatable(sql`with freed as (${free(batch)}) ${acked}`)
            return { retryIn: undefined, givenUp: 0 }
          }
          const [row] = yield* repeatable(sql<{ readonly retry: number | null; readonly given_up: number }>`
            with freed as (${free(batch)}),
            acked as (${acked}),
            result as materialized (
              select * from unnest(${kept.map(({ id }) => id)}::uuid[], ${kept.map(({ outcome }) => outcome === "reject")}::bool[],
                ${kept.map((one) => (one.outcome === "retry" ? (one.delaySeconds ?? -1) : -1))}::int[],
                ${kept.map(({ why }) => why)}::text[]) as r(id, rejected, delay, why)
            ),
            rules as materialized (
              select max_retries, retry_delay_seconds, dead_letter_uid from queue
              where org_id = ${orgId}::uuid and uid = ${uid}::uuid
            ),
            -- It must not be removed between this look and the move: what is moved would go with it unseen.
            letters as materialized (
              select d.uid from queue d where d.org_id = ${orgId}::uuid and d.uid = (select dead_letter_uid from rules)
              for key share of d
            ),
            judged as materialized (
              select m.id, r.why, case when r.delay >= 0 then r.delay else (select retry_delay_seconds from rules) end as delay,
                r.rejected or m.attempt > (select max_retries from rules) as spent
              from result r join queue_message m
                on m.org_id = ${orgId}::uuid and m.queue_uid = ${uid}::uuid and m.id = r.id and m.lease_token = ${token}
            ),
            kept as (
              update queue_message m set lease_token = null, last_error = j.why,
                failed = coalesce(j.spent, false) and not exists (select from letters),
                due_at = case when j.spent then now() else now() + make_interval(secs => coalesce(j.delay, 0)) end,
                queue_uid = case when j.spent then coalesce((select uid from letters), m.queue_uid) else m.queue_uid end,
                source_uid = case when j.spent and exists (select from letters) then ${uid}::uuid else m.source_uid end,
                attempt = case when j.spent and exists (select from letters) then 0 else m.attempt end,
                entered_at = case when j.spent and exists (select from letters) then now() else m.entered_at end
              from judged j
              where m.org_id = ${orgId}::uuid and m.queue_uid = ${uid}::uuid and m.id = j.id and m.lease_token = ${token}
              returning m.due_at, j.spent
            ),
            woken as (select pg_notify('svc_queue', uid::text) from letters where exists (select from judged where spent))
            select (select count(*) from woken) as woken, count(*) filter (where spent)::int as given_up,
              extract(epoch from min(due_at) filter (where spent is not true) - now())::float8 as retry
            from kept`)
          return { retryIn: row?.retry ?? undefined, givenUp: row?.given_up ?? 0 }
        }),

        giveBack: (batch, toOthers) =>
          Effect.asVoid(
            repeatable(sql`
              with freed as (${free(batch)}),
              back as (
                update queue_message set lease_token = null, attempt = attempt - 1, due_at = now()
                where org_id = ${batch.orgId}::uuid and queue_uid = ${batch.uid}::uuid and id = any(${ids(batch)}::uuid[])
                  and lease_token = ${batch.token}
              )
              select case when ${toOthers} then pg_notify('svc_queue', ${batch.uid}::text) end`)
          )
      })
    })
  )
}
