/** Events that Stripe sent: stored once each by Stripe's id of them, worked on in turn, and kept to be looked at. */
import { randomUUIDv7 } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import { CustomerPayments } from "#schemas/customer-payments.ts"
import { looksLikeUid } from "#schemas/names.ts"
import { batched } from "#src/access/batching.ts"
import type { Room } from "#src/loops/leased.ts"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, repeatable, type Sql, wasRefused } from "#src/store/Db.ts"
import type { Actor } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { Ref } from "./Connections.ts"
import type { ObjectType } from "./scopes.ts"

export type ProcessingStatus = "pending" | "processing" | "processed" | "ignored" | "failed"

export interface PaymentEvent {
  readonly id: string
  readonly type: string
  readonly status: ProcessingStatus
  readonly reason: string | null
  readonly attempts: number
  readonly occurredAt: Date
  readonly receivedAt: Date
  /** Null: nobody works on it any more. */
  readonly nextAttemptAt: Date | null
}

/** An event as it comes in. */
export interface NewEvent extends Ref {
  readonly processorId: string
  readonly type: string
  /** Unix seconds. */
  readonly occurred: number
  readonly object: { readonly type: ObjectType; readonly id: string } | undefined
  /** Why it is not worked on; undefined: it is. */
  readonly ignored: string | undefined
}

/** One object that events tell of, and the events of it that are due. */
export interface EventJob extends Ref {
  readonly object: { readonly type: ObjectType; readonly id: string }
  readonly events: ReadonlyArray<{ readonly id: string; readonly lease: bigint }>
  /** Of the one that failed most. */
  readonly attempts: number
  /** The clock of the store, before Stripe is asked. */
  readonly askedAt: Date
}

export type EventOutcome =
  | { readonly _tag: "Processed" }
  | { readonly _tag: "Ignored"; readonly reason: string }
  | { readonly _tag: "Failed"; readonly reason: string }
  /** Nothing was tried: it is no attempt, and no event of the connection is worked on until then. */
  | { readonly _tag: "Waiting"; readonly reason: string; readonly inSeconds: number }
  | { readonly _tag: "Again"; readonly reason: string; readonly inSeconds: number }

/** Of one connection under way in one process: Stripe limits requests by account. */
const perConnection = 8
/** Events of one object that one look at it settles. */
const perObject = 500
export const leaseSeconds = 90
const kind = CustomerPayments.name

export class PaymentEvents extends Context.Service<
  PaymentEvents,
  {
    /** Stores it unless it is there. False: the connection is gone. */
    readonly store: (event: NewEvent) => Effect.Effect<boolean, StoreUnavailable>
    /** Newest first. */
    readonly list: (
      ref: Ref,
      limit: number,
      before?: { readonly receivedAt: string; readonly id: string }
    ) => Effect.Effect<ReadonlyArray<PaymentEvent & { readonly position: string }>, StoreUnavailable>
    readonly find: (ref: Ref, id: string) => Effect.Effect<Option.Option<PaymentEvent>, StoreUnavailable>
    /** Works on one again that failed. None: it has not failed, or there is none. */
    readonly retry: (
      ref: Ref,
      id: string,
      actor: Actor
    ) => Effect.Effect<Option.Option<PaymentEvent>, StoreUnavailable>
    readonly claim: (room: Room<EventJob>) => Effect.Effect<ReadonlyArray<EventJob>, StoreUnavailable>
    readonly settle: (job: EventJob, outcome: EventOutcome) => Effect.Effect<void, StoreUnavailable>
    /** Nobody worked on them. */
    readonly release: (job: EventJob) => Effect.Effect<void, StoreUnavailable>
    /** Seconds until the first is due, or its lease ends; undefined: nothing waits. */
    readonly nextIn: Effect.Effect<number | undefined, StoreUnavailable>
  }
>()("svc/payments/PaymentEvents") {
  static readonly layer = Layer.effect(
    PaymentEvents,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db

      const store = yield* batched(
        ({ uid, processorId }: NewEvent) => `${uid} ${processorId}`,
        Effect.fnUntraced(function* (events: ReadonlyArray<NewEvent>) {
          const alive = yield* Effect.result(repeatable(insert(sql, events)))
          if (alive._tag === "Failure") {
            if (!wasRefused(alive.failure)) return yield* alive.failure
            // One event that the store does not take must not keep out those of others.
            return yield* Effect.forEach(events, (one) =>
              Effect.map(Effect.result(repeatable(insert(sql, [one]))), (result) =>
                Result.map(result, (rows) => rows.length > 0)
              )
            )
          }
          const uids = new Set(alive.success.map(({ uid }) => uid))
          return events.map(({ uid }) => Result.succeed(uids.has(uid)))
        })
      )

      const columns =
        sql.literal(`e.id, e.type, e.status, e.reason, e.attempts, e.occurred_at as "occurredAt",
        e.received_at as "receivedAt",
        case when e.status in ('pending', 'processing') then greatest(e.due_at, (select c.parked_until
          from payment_connection c where c.org_id = e.org_id and c.uid = e.connection_uid)) end as "nextAttemptAt"`)
      const of = ({ orgId, uid }: Ref) => sql`e.org_id = ${orgId}::uuid and e.connection_uid = ${uid}::uuid`
      const held = ({ orgId, events }: EventJob) => sql`e.org_id = ${orgId}::uuid
        and (e.id, e.lease_token) in (select * from unnest(${events.map(({ id }) => id)}::uuid[],
          ${events.map(({ lease }) => String(lease))}::bigint[]))`

      return PaymentEvents.of({
        store: (event) => Effect.flatMap(store(event), Effect.fromResult),
        // Index: payment_event_listing.
        list: (ref, limit, before) =>
          repeatable(sql<PaymentEvent & { readonly position: string }>`
            select ${columns}, (extract(epoch from e.received_at) * 1000000)::bigint::text as position
            from payment_event e where ${of(ref)}
              and ${
                before === undefined
                  ? sql`true`
                  : sql`(e.received_at, e.id) < (timestamptz 'epoch' + ${before.receivedAt}::bigint * interval '1 microsecond',
                      ${before.id}::uuid)`
              }
            order by e.received_at desc, e.id desc limit ${limit}::int`),
        find: Effect.fn("payments.PaymentEvents.find")(function* (ref, id) {
          if (!looksLikeUid(id)) return Option.none()
          const [row] = yield* repeatable(sql<PaymentEvent>`
            select ${columns} from payment_event e where ${of(ref)} and e.id = ${id}::uuid`)
          return Option.fromUndefinedOr(row)
        }),
        retry: Effect.fn("payments.PaymentEvents.retry")(function* (ref, id, actor) {
          if (!looksLikeUid(id)) return Option.none()
          const [row] = yield* repeatable(sql<PaymentEvent>`
            with e as (
              update payment_event e set status = 'pending', reason = null, attempts = 0, due_at = now(), lease_token = null
              where ${of(ref)} and e.id = ${id}::uuid and e.object_id is not null and e.status = 'failed'
              returning e.*
            ), audited as (${auditOf(sql, ref.orgId, actor, "e")}),
            told as (select pg_notify('svc_payments', '') from e)
            select ${columns} from e left join told on true`)
          return Option.fromUndefinedOr(row)
        }),
        claim: Effect.fnUntraced(function* (room) {
          const rows = yield* repeatable(claim(sql, room))
          const jobs = new Map<string, Claimed[]>()
          for (const row of rows) {
            const key = `${row.uid} ${row.objectId}`
            jobs.set(key, [...(jobs.get(key) ?? []), row])
          }
          return [...jobs.values()].flatMap((of): ReadonlyArray<EventJob> => {
            const [one] = of
            if (one === undefined) return []
            const { orgId, uid, objectType, objectId, askedAt } = one
            return [
              {
                orgId,
                uid,
                object: { type: objectType, id: objectId },
                events: of.map(({ id, lease }) => ({ id, lease })),
                attempts: Math.max(...of.map(({ attempts }) => attempts)),
                askedAt
              }
            ]
          })
        }),
        settle: (job, outcome) => {
          const set =
            outcome._tag === "Again" || outcome._tag === "Waiting"
              ? sql`status = 'pending', reason = ${outcome.reason},
                  attempts = e.attempts + ${outcome._tag === "Again" ? 1 : 0}::int,
                  due_at = now() + make_interval(secs => ${outcome._tag === "Again" ? outcome.inSeconds : 0}::float8)`
              : sql`status = ${outcome._tag.toLowerCase()}, attempts = e.attempts + 1,
                  reason = ${outcome._tag === "Processed" ? null : outcome.reason}::text`
          const parked =
            outcome._tag === "Waiting"
              ? sql`with parked as (
                  update payment_connection set parked_until = now() + make_interval(secs => ${outcome.inSeconds}::float8)
                  where org_id = ${job.orgId}::uuid and uid = ${job.uid}::uuid)`
              : sql``
          return Effect.asVoid(
            repeatable(
              sql`${parked} update payment_event e set ${set}, lease_token = null where ${held(job)}`
            )
          )
        },
        release: (job) =>
          Effect.asVoid(
            repeatable(sql`
              update payment_event e set status = 'pending', lease_token = null, due_at = now() where ${held(job)}`)
          ),
        nextIn: Effect.map(
          repeatable(sql<{ readonly next: number | null }>`
            with recursive ${waiting(sql)}
            select extract(epoch from min(greatest(q.due_at, c.parked_until)) - now())::float8 as next
            from waiting q left join payment_connection c on c.org_id = q.org_id and c.uid = q.connection_uid`),
          ([row]) => row?.next ?? undefined
        )
      })
    })
  )
}

/** Connections that are alive; disconnecting waits for the statement's end, and nothing is stored after it. */
const insert = (sql: Sql, events: ReadonlyArray<NewEvent>) => {
  const rows = events.map(({ orgId, uid, processorId, object, ...event }) => ({
    ...event,
    org_id: orgId,
    connection_uid: uid,
    processor_id: processorId,
    id: randomUUIDv7(),
    object_type: object?.type ?? null,
    object_id: object?.id ?? null,
    ignored: event.ignored ?? null
  }))
  return sql<{ readonly uid: string }>`
    with asked as materialized (
      select * from jsonb_to_recordset(${sql.json(rows)}::jsonb) as x(org_id uuid, connection_uid uuid, id uuid,
        processor_id text, type text, occurred float8, object_type text, object_id text, ignored text)
    ), place as materialized (
      select r.org_id, r.uid from resource r
      where (r.org_id, r.uid) in (select a.org_id, a.connection_uid from asked a) and r.kind = ${kind}
        and r.deletion_requested_at is null
      order by r.uid for share
    ), made as (
      insert into payment_event (org_id, id, connection_uid, processor_id, type, object_type, object_id, status, reason,
        occurred_at)
      select p.org_id, a.id, p.uid, a.processor_id, a.type, a.object_type, a.object_id,
        case when a.ignored is null then 'pending' else 'ignored' end, a.ignored, to_timestamp(a.occurred)
      from asked a join place p on p.org_id = a.org_id and p.uid = a.connection_uid
      on conflict (org_id, connection_uid, processor_id) do nothing
      returning status
    ), told as (select pg_notify('svc_payments', '') from (select from made where status = 'pending' limit 1) m)
    select p.uid from place p left join told on true`
}

/** A recursive CTE: each connection that something waits for, and the time of its event that is due first. */
const waiting = (sql: Sql) => sql`waiting as (
    -- Index: payment_event_due; one step for each connection.
    (select org_id, connection_uid, due_at from payment_event where status in ('pending', 'processing')
      order by connection_uid, due_at limit 1)
    union all
    select n.org_id, n.connection_uid, n.due_at from waiting q cross join lateral (
      select e.org_id, e.connection_uid, e.due_at from payment_event e
      where e.status in ('pending', 'processing') and e.connection_uid > q.connection_uid
      order by e.connection_uid, e.due_at limit 1) n
  )`

interface Claimed extends Ref {
  readonly id: string
  readonly objectType: ObjectType
  readonly objectId: string
  readonly attempts: number
  readonly lease: bigint
  readonly askedAt: Date
}

/**
 * Some of what is due for each connection, longest waiting first, and with each event the others of the same object, so
 * that one look at it settles them all. The lease is the time at which they are due again.
 */
const claim = (sql: Sql, { most, orgs, running }: Room<EventJob>) => {
  const busy: Record<string, number> = {}
  for (const { uid } of running) busy[uid] = (busy[uid] ?? 0) + 1
  const rooms = Object.fromEntries([...orgs.holders].map(([org, { room }]) => [org, room]))
  return sql<Claimed>`
  with recursive ${waiting(sql)}, turn as (
    select q.* from (
      select connection_uid, due_at,
        ${perConnection}::int - coalesce((${sql.json(busy)}::jsonb ->> connection_uid::text)::int, 0) as room,
        coalesce((${sql.json(rooms)}::jsonb ->> org_id::text)::int, ${orgs.others}::int) as org_room
      from waiting w where due_at <= now() and not exists (select from payment_connection c
        where c.org_id = w.org_id and c.uid = w.connection_uid and c.parked_until > now())) q
    where q.room > 0 and q.org_room > 0 order by q.due_at limit ${most}::int
  ), due as materialized (
    select d.*, t.org_room, t.room from turn t cross join lateral (
      select e.org_id, e.connection_uid, e.object_id, min(e.due_at) as due_at from (
        select * from payment_event e
        where e.status in ('pending', 'processing') and e.connection_uid = t.connection_uid and e.due_at <= now()
        order by e.due_at limit ${perObject}::int) e
      group by e.org_id, e.connection_uid, e.object_id
      order by min(e.due_at) limit t.room) d
  ), chosen as materialized (
    select org_id, connection_uid, object_id from (
      select d.*, row_number() over (partition by org_id order by due_at) as nth from due d) d
    where nth <= org_room order by due_at limit ${most}::int
  ), locked as materialized (
    -- Index: payment_event_object.
    select e.org_id, e.id from chosen c join payment_event e on e.org_id = c.org_id
      and e.connection_uid = c.connection_uid and e.object_id = c.object_id
      and e.status in ('pending', 'processing') and e.due_at <= now()
    order by e.due_at limit ${perObject * 4}::int for update of e skip locked
  )
  update payment_event e set status = 'processing', lease_token = nextval('lease_token'),
    due_at = now() + make_interval(secs => ${leaseSeconds}::int)
  from locked l where e.org_id = l.org_id and e.id = l.id
  returning e.org_id as "orgId", e.connection_uid as uid, e.id, e.object_type as "objectType",
    e.object_id as "objectId", e.attempts, e.lease_token as lease, clock_timestamp() as "askedAt"`
}
