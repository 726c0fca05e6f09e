/**
 * Objects at Stripe as they were seen last. Whatever tells of a change, the object itself is asked for, and of two answers
 * the one to the later question stays: so the order of events, and how often one comes, make no difference.
 */
import { randomUUIDv7 } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { CustomerPayments } from "#schemas/customer-payments.ts"
import { looksLikeUid } from "#schemas/names.ts"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, inOrg, repeatable, type Sql } from "#src/store/Db.ts"
import type { Actor } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { Ref } from "./Connections.ts"
import { Content, type Seen } from "./objects.ts"
import { type ObjectType, objectTypes } from "./scopes.ts"

export interface Projected {
  readonly id: string
  readonly processorId: string
  readonly content: Content
  /** Ids of ours; null: it belongs to none, or to one that was not seen. */
  readonly productId: string | null
  readonly customerId: string | null
  readonly priceId: string | null
  readonly createdAt: Date
  readonly updatedAt: Date
}

/** Place in a list. */
export interface After {
  readonly createdAt: Date
  readonly id: string
}

export class Projections extends Context.Service<
  Projections,
  {
    /** The time of the store, to be read before Stripe is asked. */
    readonly now: Effect.Effect<Date, StoreUnavailable>
    /**
     * Stores what Stripe answered to a question of `askedAt`. Answers our ids by those of Stripe's, and whether each was
     * stored; nothing where the connection is gone. `actor` is who changed them at Stripe, for the audit log.
     */
    readonly store: (
      ref: Ref,
      askedAt: Date,
      objects: ReadonlyArray<Seen>,
      actor?: Actor
    ) => Effect.Effect<
      ReadonlyMap<string, { readonly id: string; readonly stored: boolean }>,
      StoreUnavailable
    >
    /** They were deleted at Stripe. */
    readonly remove: (
      ref: Ref,
      askedAt: Date,
      processorIds: ReadonlyArray<string>
    ) => Effect.Effect<void, StoreUnavailable>
    readonly find: (
      ref: Ref,
      type: ObjectType,
      id: string
    ) => Effect.Effect<Option.Option<Projected>, StoreUnavailable>
    /** Oldest first. */
    readonly list: (
      ref: Ref,
      type: ObjectType,
      limit: number,
      after?: After
    ) => Effect.Effect<ReadonlyArray<Projected>, StoreUnavailable>
    /** Ids of Stripe's of objects that nobody looked at since; at most `limit`. */
    readonly notSeenSince: (
      ref: Ref,
      type: ObjectType,
      since: Date,
      limit: number
    ) => Effect.Effect<ReadonlyArray<string>, StoreUnavailable>
    /** Some that are known in the account: the newest and the oldest of each type. */
    readonly some: (
      ref: Ref
    ) => Effect.Effect<
      ReadonlyArray<{ readonly type: ObjectType; readonly processorId: string }>,
      StoreUnavailable
    >
  }
>()("svc/payments/Projections") {
  static readonly layer = Layer.effect(
    Projections,
    Effect.map(Db, ({ engine: sql }) => make(sql))
  )
}

interface Row extends Omit<Projected, "content"> {
  readonly content: unknown
}
const decodeContent = Schema.decodeUnknownEffect(Content)
const toProjected = Effect.fnUntraced(function* (row: Row) {
  return { ...row, content: yield* Effect.orDie(decodeContent(row.content)) }
})

const kind = CustomerPayments.name
/** Of each type, from each end of the list, when a key is asked what it knows: some may have been deleted at Stripe. */
const ofEachEnd = 2

/**
 * The connection, held until the end of the statement: disconnecting waits for whoever stores something, and nothing is
 * stored after it.
 */
export const livingConnection = (sql: Sql, { orgId, uid }: Ref) => sql`
  select r.org_id, r.uid from resource r
  where r.org_id = ${orgId}::uuid and r.uid = ${uid}::uuid and r.kind = ${kind}
    and r.deletion_requested_at is null and ${inOrg(sql, orgId)} for share`

const make = (sql: Sql) => {
  const known = (column: string) => sql`(select t.id from payment_object t
    where t.org_id = o.org_id and t.connection_uid = o.connection_uid and t.processor_id = o.${sql(column)})`
  const columns = sql`o.id, o.processor_id as "processorId", o.content, ${known("product")} as "productId",
    ${known("customer")} as "customerId", ${known("price")} as "priceId", o.created_at as "createdAt",
    o.updated_at as "updatedAt"`
  const of = ({ orgId, uid }: Ref, type: ObjectType) =>
    sql`o.org_id = ${orgId}::uuid and o.connection_uid = ${uid}::uuid and o.type = ${type} and not o.gone`

  return Projections.of({
    now: Effect.flatMap(repeatable(sql<{ readonly now: Date }>`select clock_timestamp() as now`), ([row]) =>
      row === undefined ? Effect.die(new Error("select answers one row")) : Effect.succeed(row.now)
    ),
    store: Effect.fn("payments.Projections.store")(function* (ref, askedAt, objects, actor) {
      // Once each, and in one order for everybody, so that two at once do not wait for each other.
      const once = new Map(objects.map((one) => [one.processorId, one]))
      const asked = [...once.values()]
        .sort((a, b) => (a.processorId < b.processorId ? -1 : 1))
        .map(({ processorId, intent, ...one }) => ({
          ...one,
          processor_id: processorId,
          intent: intent !== null && looksLikeUid(intent) ? intent : null,
          id: randomUUIDv7()
        }))
      if (asked.length === 0) return new Map()
      const rows = yield* repeatable(sql<{
        readonly processor_id: string
        readonly id: string
        readonly stored: boolean
      }>`
        with place as materialized (${livingConnection(sql, ref)}),
        asked as materialized (
          select * from jsonb_to_recordset(${sql.json(asked)}::jsonb) as x(id uuid, type text, processor_id text,
            content jsonb, created float8, product text, customer text, price text, intent uuid)
        ), made as (
          insert into payment_object as o (org_id, id, connection_uid, type, processor_id, content, product, customer,
            price, created_at, looked_at)
          select p.org_id, coalesce(i.id, a.id), p.uid, a.type, a.processor_id, a.content, a.product, a.customer,
            a.price, to_timestamp(a.created), ${askedAt}::timestamptz
          from asked a cross join place p
          -- What a request of ours made has the id that the request was given. Metadata can be copied: once only.
          left join payment_intent i on i.org_id = p.org_id and i.connection_uid = p.uid and i.id = a.intent
            and (i.processor_id is null or i.processor_id = a.processor_id)
            and not exists (select from payment_object t where t.org_id = i.org_id and t.id = i.id)
          order by a.processor_id
          on conflict (org_id, connection_uid, processor_id) do update set
            content = excluded.content, product = excluded.product, customer = excluded.customer,
            price = excluded.price, gone = false, looked_at = excluded.looked_at,
            updated_at = case when (o.content, o.product, o.customer, o.price, o.gone) is distinct from
              (excluded.content, excluded.product, excluded.customer, excluded.price, false) then now() else o.updated_at end
            where o.looked_at <= excluded.looked_at
          returning o.org_id, o.connection_uid, o.id, o.processor_id
        ), settled as (
          update payment_intent i set processor_id = m.processor_id from made m
          where i.org_id = m.org_id and i.id = m.id and i.connection_uid = m.connection_uid and i.processor_id is null
        ), answered as (
          select a.processor_id, coalesce(m.id, o.id) as id, m.id is not null as stored
          from asked a cross join place p
          left join made m on m.processor_id = a.processor_id
          left join payment_object o
            on o.org_id = p.org_id and o.connection_uid = p.uid and o.processor_id = a.processor_id
          where coalesce(m.id, o.id) is not null
        )${actor === undefined ? sql`` : sql`, audited as (${auditOf(sql, ref.orgId, actor, "answered")})`}
        select processor_id, id, stored from answered`)
      const answered = new Map(rows.map(({ processor_id, id, stored }) => [processor_id, { id, stored }]))
      const left = asked.map(({ processor_id }) => processor_id).filter((id) => !answered.has(id))
      if (left.length === 0) return answered
      // A later look that was stored meanwhile is no part of what the statement above sees.
      const others = yield* repeatable(sql<{ readonly processor_id: string; readonly id: string }>`
        with place as materialized (${livingConnection(sql, ref)}), answered as (
          select o.processor_id, o.id from payment_object o join place p on p.org_id = o.org_id and p.uid = o.connection_uid
          where o.org_id = ${ref.orgId}::uuid and o.connection_uid = ${ref.uid}::uuid
            and o.processor_id = any(${left}::text[])
        )${actor === undefined ? sql`` : sql`, audited as (${auditOf(sql, ref.orgId, actor, "answered")})`}
        select processor_id, id from answered`)
      for (const { processor_id, id } of others) answered.set(processor_id, { id, stored: false })
      return answered
    }),
    remove: (ref, askedAt, processorIds) =>
      Effect.asVoid(
        repeatable(sql`
          update payment_object set gone = true, looked_at = ${askedAt}::timestamptz, updated_at = now()
          where org_id = ${ref.orgId}::uuid and connection_uid = ${ref.uid}::uuid
            and processor_id = any(${[...processorIds]}::text[]) and looked_at <= ${askedAt}::timestamptz and not gone`)
      ),
    find: Effect.fn("payments.Projections.find")(function* (ref, type, id) {
      if (!looksLikeUid(id)) return Option.none()
      const [row] = yield* repeatable(sql<Row>`
        select ${columns} from payment_object o where ${of(ref, type)} and o.id = ${id}::uuid`)
      return row === undefined ? Option.none() : Option.some(yield* toProjected(row))
    }),
    // Index: payment_object_listing.
    list: Effect.fn("payments.Projections.list")(function* (ref, type, limit, after) {
      const rows = yield* repeatable(sql<Row>`
        select ${columns} from payment_object o
        where ${of(ref, type)}
          and ${after === undefined ? sql`true` : sql`(o.created_at, o.id) > (${after.createdAt}::timestamptz, ${after.id}::uuid)`}
        order by o.created_at, o.id limit ${limit}::int`)
      return yield* Effect.forEach(rows, toProjected)
    }),
    // Index: payment_object_looked.
    notSeenSince: (ref, type, since, limit) =>
      Effect.map(
        repeatable(sql<{ readonly processor_id: string }>`
          select o.processor_id from payment_object o
          where ${of(ref, type)} and o.looked_at < ${since}::timestamptz
          order by o.looked_at limit ${limit}::int`),
        (rows) => rows.map(({ processor_id }) => processor_id)
      ),
    // Index: payment_object_listing.
    some: ({ orgId, uid }) => {
      const of = (direction: string) => sql`(
        select type, processor_id from payment_object
        where org_id = ${orgId}::uuid and connection_uid = ${uid}::uuid and type = t.type and not gone
        order by created_at ${sql.literal(direction)}, id ${sql.literal(direction)} limit ${ofEachEnd}::int)`
      return repeatable(sql<{ readonly type: ObjectType; readonly processorId: string }>`
        select o.type, o.processor_id as "processorId"
        from unnest(${[...objectTypes]}::text[]) as t(type)
        cross join lateral (${of("desc")} union ${of("asc")}) o`)
    }
  })
}
