/** The messages of a queue as requests see them: publishing, counting, another chance, and throwing away. */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { countedBacklog } from "#schemas/queue.ts"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, inOrg, orUnavailable, repeatable } from "#src/store/Db.ts"
import { newReservation, type Reservation, uidsOf } from "#src/store/Reservation.ts"
import type { Actor } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { QueueLimits } from "./limits.ts"

/** The queue, or all of its organization together, hold as much as they may. */
export class QueueFull extends Schema.TaggedError<QueueFull>()("QueueFull", {
  message: Schema.String
}) {}

export interface NewMessage {
  /** JSON. */
  readonly body: string
  readonly delaySeconds: number
  /** Of several messages with one key within 24 hours, the first one counts. */
  readonly key?: string
}

export interface Published {
  readonly id: string
  /** A message was published with this key before; `id` is that one's. */
  readonly duplicate: boolean
}

/** No more than {@link countedBacklog} are counted of each. */
export interface QueueStats {
  /** All that is not given up: what is due, what waits for its time, and what is being delivered. */
  readonly backlog: number
  readonly delayed: number
  readonly inFlight: number
  /** Given up and kept here. */
  readonly failed: number
  /** Given up here and kept in another queue. */
  readonly inDeadLetterQueue: number
  readonly oldestMessageAt: Date | null
  readonly oldestMessageAgeSeconds: number
}

const batch = 5_000
/** The key that tells that a request was carried out. Keys of messages have no blanks. */
const requestKeyOf = ({ uid }: Reservation) => `request ${uid}`
/** Under which the sum of an organization is kept. */
const allQueues = "00000000-0000-0000-0000-000000000000"

export class Messages extends Context.Service<
  Messages,
  {
    /**
     * All of them or none, with the audit record. None comes back when the queue is gone. What was published under a
     * reservation with a key within 24 hours is answered and not published again.
     */
    readonly publish: (
      orgId: string,
      queueUid: string,
      messages: ReadonlyArray<NewMessage>,
      actor: Actor,
      reservation?: Reservation
    ) => Effect.Effect<ReadonlyArray<Published>, StoreUnavailable | QueueFull>
    readonly stats: (orgId: string, queueUid: string) => Effect.Effect<QueueStats, StoreUnavailable>
    /**
     * Another chance for what was given up: what this queue gave up comes back to it, and what it holds for others
     * goes back to them. Answers how many, at most `limit`. What a request did under a reservation with a key within 24
     * hours is answered and not done again.
     */
    readonly redrive: (
      orgId: string,
      queueUid: string,
      limit: number,
      actor: Actor,
      reservation?: Reservation
    ) => Effect.Effect<number, StoreUnavailable>
    /** Throws everything in it away, also what is being delivered; with `until`, only what came into it by then. */
    readonly purge: (
      orgId: string,
      queueUid: string,
      actor: Actor,
      until?: Date
    ) => Effect.Effect<number, StoreUnavailable>
  }
>()("svc/queues/Messages") {
  static readonly layer = Layer.effect(
    Messages,
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      const limits = yield* QueueLimits
      const publishers = recently()

      interface Held {
        readonly queueMessages: number
        readonly queueBytes: number
        readonly orgMessages: number
        readonly orgBytes: number
      }
      /** What the queue holds, and all of the organization. Index: the primary key of queue_backlog. */
      const held = (orgId: string, queueUid: string) => sql`
        select coalesce(sum(messages) filter (where queue_uid = ${queueUid}::uuid), 0)::float8 as "queueMessages",
          coalesce(sum(bytes) filter (where queue_uid = ${queueUid}::uuid), 0)::float8 as "queueBytes",
          coalesce(sum(messages) filter (where queue_uid = ${allQueues}::uuid), 0)::float8 as "orgMessages",
          coalesce(sum(bytes) filter (where queue_uid = ${allQueues}::uuid), 0)::float8 as "orgBytes"
        from queue_backlog where org_id = ${orgId}::uuid and queue_uid in (${queueUid}::uuid, ${allQueues}::uuid)
          and ${inOrg(sql, orgId)}`

      /** Why nothing was published: undefined when the queue is gone, or has room again. */
      const whyFull = Effect.fnUntraced(function* (
        orgId: string,
        queueUid: string,
        count: number,
        bytes: number
      ) {
        const [now] = yield* repeatable(sql<Held>`
          select h.* from (${held(orgId, queueUid)}) h where exists (select from resource r
            where r.org_id = ${orgId}::uuid and r.uid = ${queueUid}::uuid and r.deletion_requested_at is null
              and r.deleted_at is null and ${inOrg(sql, orgId)})`)
        if (now === undefined) return undefined
        const [what, most] =
          now.queueMessages + count > limits.queueMessages
            ? ["queue", `${limits.queueMessages} messages`]
            : now.queueBytes + bytes > limits.queueBytes
              ? ["queue", `${limits.queueBytes} bytes`]
              : now.orgMessages + count > limits.orgMessages
                ? ["organization", `${limits.orgMessages} messages in all of its queues`]
                : ["organization", `${limits.orgBytes} bytes in all of its queues`]
        return new QueueFull({
          message: `The ${what} may hold ${most}, and these would be more: publish them when some were delivered or purged`
        })
      })

      const publish = Effect.fn("Messages.publish")(function* (
        orgId: string,
        queueUid: string,
        messages: ReadonlyArray<NewMessage>,
        actor: Actor,
        reservation: Reservation = newReservation(false)
      ) {
        // A key that comes twice in one request: the first counts here as well.
        const first = new Map<string, number>()
        const originals = messages.map(({ key }, index) => {
          if (key === undefined) return index
          if (!first.has(key)) first.set(key, index)
          return first.get(key) ?? index
        })
        const ids = uidsOf(reservation, "messages", messages.length)
        const rows = messages.flatMap((message, index) =>
          originals[index] === index ? [{ ...message, id: ids[index] ?? "", index }] : []
        )
        const keyed = rows.flatMap(({ id, key }) => (key === undefined ? [] : [{ id, key }]))
        const gate = inOrg(sql, orgId)
        // Keys in order, so that two requests with the same ones do not wait for each other in a circle.
        const keys = sql`
          keyed as (
            insert into queue_key as k (org_id, queue_uid, key, message_id)
            select ${orgId}::uuid, live.uid, i.key, i.id
            from unnest(${keyed.map(({ id }) => id)}::uuid[], ${keyed.map(({ key }) => key)}::text[]) as i(id, key)
            cross join live where ${gate} order by i.key
            on conflict (org_id, queue_uid, key) do update set
              message_id = case when k.at < now() - interval '24 hours' then excluded.message_id else k.message_id end,
              at = case when k.at < now() - interval '24 hours' then now() else k.at end
            returning k.key, k.message_id
          ),
          before as materialized (
            select i.id, keyed.message_id
            from unnest(${keyed.map(({ id }) => id)}::uuid[], ${keyed.map(({ key }) => key)}::text[]) as i(id, key)
            join keyed on keyed.key = i.key where keyed.message_id <> i.id
          ),`
        const known = keyed.length > 0
        const requestKey = requestKeyOf(reservation)
        // The messages may be delivered and gone: that they were published is remembered for as long as keys are.
        const once = sql`
          request as (
            insert into queue_key (org_id, queue_uid, key, message_id)
            select ${orgId}::uuid, uid, ${requestKey}::text, ${reservation.uid}::uuid from room where ${gate}
            on conflict (org_id, queue_uid, key) do nothing
            returning 1
          ),`
        /** What an earlier try published. */
        const before = sql<{ readonly id: string; readonly kept: string }>`
          select i.id, coalesce(k.message_id, i.id) as kept
          from unnest(${rows.map(({ id }) => id)}::uuid[], ${rows.map(({ key }) => key ?? null)}::text[]) as i(id, key)
          left join queue_key k on k.org_id = ${orgId}::uuid and k.queue_uid = ${queueUid}::uuid and k.key = i.key
          where ${gate} and exists (select from queue_key r
            where r.org_id = ${orgId}::uuid and r.queue_uid = ${queueUid}::uuid and r.key = ${requestKey}::text)`
        const bytes = rows.reduce((sum, { body }) => sum + Buffer.byteLength(body), 0)
        const now = yield* Clock.currentTimeMillis
        const publisher = [orgId, queueUid, actor.principal, actor.credential, actor.operation].join(" ")
        const audits = !publishers.has(publisher, now)
        // Not tried again when the answer is lost: without a key that would publish it twice.
        const published = yield* orUnavailable(sql<{ readonly id: string; readonly kept: string }>`
          with held as materialized (${held(orgId, queueUid)}),
          room as materialized (
            select r.uid from resource r where r.org_id = ${orgId}::uuid and r.uid = ${queueUid}::uuid and r.kind = 'Queue'
              and r.deletion_requested_at is null and r.deleted_at is null and ${gate}
              and (select "queueMessages" + ${rows.length}::int <= ${limits.queueMessages}::float8
                and "queueBytes" + ${bytes}::float8 <= ${limits.queueBytes}::float8
                and "orgMessages" + ${rows.length}::int <= ${limits.orgMessages}::float8
                and "orgBytes" + ${bytes}::float8 <= ${limits.orgBytes}::float8 from held)
          ),
          ${reservation.keyed ? once : sql``}
          live as materialized (
            select uid from room ${reservation.keyed ? sql`where exists (select from request)` : sql``}
          ),
          ${known ? keys : sql``}
          input as materialized (
            select * from unnest(${rows.map(({ id }) => id)}::uuid[], ${rows.map(({ body }) => body)}::text[],
              ${rows.map(({ delaySeconds }) => delaySeconds)}::int[]) as i(id, body, delay)
          ),
          stored as (
            insert into queue_message (org_id, queue_uid, id, body, due_at)
            select ${orgId}::uuid, live.uid, i.id, i.body, now() + make_interval(secs => i.delay)
            from input i cross join live
            where ${gate} ${known ? sql`and i.id not in (select id from before)` : sql``}
          ),
          asked as (select uid as id from live where ${audits}),
          audited as (${auditOf(sql, orgId, actor, "asked")}),
          woken as (select pg_notify('svc_queue', uid::text) from live)
          select i.id, ${known ? sql`coalesce((select b.message_id from before b where b.id = i.id), i.id)` : sql`i.id`} as kept
          from input i cross join woken`)
        const kept = published.length === 0 && reservation.keyed ? yield* repeatable(before) : published
        if (kept.length === 0) {
          const full = yield* whyFull(orgId, queueUid, rows.length, bytes)
          return full === undefined ? [] : yield* full
        }
        if (audits) publishers.add(publisher, now)
        const byId = new Map(kept.map((row) => [row.id, row.kept]))
        const byIndex = new Map(
          rows.map(({ id, index }) => [index, { id: byId.get(id) ?? id, duplicate: byId.get(id) !== id }])
        )
        return originals.map((original, index): Published => {
          const { id, duplicate } = byIndex.get(original) ?? { id: "", duplicate: true }
          return { id, duplicate: duplicate || original !== index }
        })
      })

      interface StatsRow extends Omit<QueueStats, "oldestMessageAgeSeconds"> {
        readonly age: number | null
      }

      return Messages.of({
        publish,

        // Indexes: queue_message_due, queue_message_failed, queue_message_source. What is in flight is due again soon, so
        // it comes before what is delayed.
        stats: Effect.fn("Messages.stats")(function* (orgId, queueUid) {
          const gate = inOrg(sql, orgId)
          const inQueue = sql`m.org_id = ${orgId}::uuid and m.queue_uid = ${queueUid}::uuid and ${gate}`
          const [row] = yield* repeatable(sql<StatsRow>`
            select b.*, l.*,
              (select count(*)::int from (select from queue_message m where ${inQueue} and m.failed
                limit ${countedBacklog}::int) f) as failed,
              (select count(*)::int from (select from queue_message m
                where m.org_id = ${orgId}::uuid and m.source_uid = ${queueUid}::uuid and ${gate}
                limit ${countedBacklog}::int) d) as "inDeadLetterQueue"
            from (
              select count(*)::int as backlog, min(entered_at) as "oldestMessageAt",
                extract(epoch from now() - min(entered_at))::float8 as age
              from (select m.entered_at from queue_message m where ${inQueue} and not m.failed
                order by m.due_at limit ${countedBacklog}::int) first) b
            cross join (
              select count(*) filter (where lease_token is null)::int as delayed,
                count(*) filter (where lease_token is not null)::int as "inFlight"
              from (select m.lease_token from queue_message m where ${inQueue} and not m.failed and m.due_at > now()
                order by m.due_at limit ${countedBacklog}::int) later) l`)
          const { age = null, ...counts } = row ?? {}
          return {
            backlog: 0,
            delayed: 0,
            inFlight: 0,
            failed: 0,
            inDeadLetterQueue: 0,
            oldestMessageAt: null,
            ...counts,
            oldestMessageAgeSeconds: Math.max(0, Math.floor(age ?? 0))
          }
        }),

        redrive: Effect.fn("Messages.redrive")(function* (
          orgId,
          queueUid,
          limit,
          actor,
          reservation = newReservation(false)
        ) {
          const gate = inOrg(sql, orgId)
          const requestKey = requestKeyOf(reservation)
          // The row of the request holds the number of messages as the digits of its id. Two statements of one request
          // at the same time: the second fails as a whole, since the key is there.
          const [row] = yield* repeatable(sql<{ readonly count: number }>`
            with before as materialized (
              select replace(message_id::text, '-', '')::numeric::int as count from queue_key
              where org_id = ${orgId}::uuid and queue_uid = ${queueUid}::uuid and key = ${requestKey}::text and ${gate}
            ),
            chosen as materialized (
              select m.ctid, coalesce(m.source_uid, m.queue_uid) as target from queue_message m
              where m.org_id = ${orgId}::uuid and ${gate} and not exists (select from before)
                and (m.source_uid = ${queueUid}::uuid or m.queue_uid = ${queueUid}::uuid and (m.failed or m.source_uid is not null))
                and (m.lease_token is null or m.due_at <= now())
                and exists (select from resource r where r.org_id = ${orgId}::uuid
                  and r.uid = coalesce(m.source_uid, m.queue_uid)
                  and r.deletion_requested_at is null and r.deleted_at is null)
              limit ${limit}::int for update of m skip locked
            ),
            moved as (
              update queue_message m set queue_uid = c.target, source_uid = null, failed = false, attempt = 0,
                lease_token = null, due_at = now(), entered_at = now()
              from chosen c where m.ctid = c.ctid and m.org_id = ${orgId}::uuid and ${gate}
              returning m.queue_uid
            ),
            request as (
              insert into queue_key (org_id, queue_uid, key, message_id)
              select ${orgId}::uuid, r.uid, ${requestKey}::text,
                lpad((select count(*) from moved)::text, 32, '0')::uuid
              from resource r where r.org_id = ${orgId}::uuid and r.uid = ${queueUid}::uuid
                and r.deletion_requested_at is null and r.deleted_at is null
                and not exists (select from before) and ${gate}
            ),
            asked as (select ${queueUid}::text as id where not exists (select from before)),
            audited as (${auditOf(sql, orgId, actor, "asked")}),
            woken as (select pg_notify('svc_queue', uid::text) from (select distinct queue_uid as uid from moved) targets)
            select coalesce((select count from before), (select count(*) from moved))::int as count, (select count(*) from woken) as woken`)
          return row?.count ?? 0
        }),

        purge: Effect.fn("Messages.purge")(function* (orgId, queueUid, actor, until) {
          const gate = inOrg(sql, orgId)
          const old = until === undefined ? sql`` : sql`and entered_at <= ${until}::timestamptz`
          const some = (audited: boolean) =>
            Effect.map(
              repeatable(sql<{ readonly count: number }>`
                with gone as (
                  delete from queue_message where org_id = ${orgId}::uuid and ${gate} and ctid = any(array(
                    select ctid from queue_message where org_id = ${orgId}::uuid and queue_uid = ${queueUid}::uuid
                      ${old} and ${gate} limit ${batch}::int))
                  returning 1
                ),
                asked as (select ${queueUid}::text as id where ${audited}),
                audited as (${auditOf(sql, orgId, actor, "asked")})
                select count(*)::int as count from gone`),
              ([row]) => row?.count ?? 0
            )
          let last = yield* some(true)
          let total = last
          while (last >= batch) {
            last = yield* some(false)
            total += last
          }
          return total
        })
      })
    })
  )
}

/**
 * Publishing is what an app does all day, and changes nothing that anybody set up: of who publishes where, the audit log
 * hears once an hour from each process. What is refused is audited every time, by the gate.
 */
const recently = () => {
  const hour = 3_600_000
  const most = 10_000
  const seen = new Map<string, number>()
  return {
    has: (who: string, now: number) => Math.abs(now - (seen.get(who) ?? Number.NEGATIVE_INFINITY)) < hour,
    add: (who: string, now: number) => {
      // The one that was added first goes first.
      seen.delete(who)
      seen.set(who, now)
      if (seen.size > most) for (const oldest of seen.keys()) return void seen.delete(oldest)
    }
  }
}
