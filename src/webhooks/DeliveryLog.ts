/** What was sent to an endpoint and what became of it, for those who look; and sending it again. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, inOrg, orUnavailable, repeatable, type Sql } from "#src/store/Db.ts"
import { Refused } from "#src/store/errors.ts"
import type { Actor } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { testType } from "./event-types.ts"

/** One try, as it is stored. */
export const Attempt = Schema.Struct({
  startedAt: Schema.String,
  durationMs: Schema.Int,
  statusCode: Schema.NullOr(Schema.Int),
  error: Schema.NullOr(Schema.String)
})
export type Attempt = typeof Attempt.Type

export interface Delivery {
  readonly id: string
  /** Position in the list. */
  readonly seq: string
  readonly eventId: string
  readonly type: string
  readonly projectId: string | null
  readonly data: unknown
  readonly eventAt: Date
  readonly state: "waiting" | "delivered" | "failed"
  readonly attempts: ReadonlyArray<Attempt>
  readonly createdAt: Date
  readonly nextAttemptAt: Date | null
}

export interface DeliveryFilter {
  readonly state?: Delivery["state"] | undefined
  readonly event?: string | undefined
}

export class DeliveryLog extends Context.Service<
  DeliveryLog,
  {
    /** Newest first, at most `limit`, older than the one at position `before`. */
    readonly list: (
      orgId: string,
      webhookId: string,
      filter: DeliveryFilter,
      limit: number,
      before?: string
    ) => Effect.Effect<ReadonlyArray<Delivery>, StoreUnavailable>
    /**
     * An event that tells of nothing, to this endpoint alone. `id` is that of the new delivery; one that was made before
     * is answered as it is. Refused where the endpoint is disabled.
     */
    readonly test: (
      orgId: string,
      webhookId: string,
      id: string,
      actor: Actor
    ) => Effect.Effect<Delivery, Refused | StoreUnavailable>
    /** The event of that delivery, as a new one with this `id`, or as it was made before. None: the endpoint has no such delivery. */
    readonly redeliver: (
      orgId: string,
      webhookId: string,
      deliveryId: string,
      id: string,
      actor: Actor
    ) => Effect.Effect<Option.Option<Delivery>, Refused | StoreUnavailable>
  }
>()("svc/webhooks/DeliveryLog") {
  static readonly layer = Layer.effect(
    DeliveryLog,
    Effect.gen(function* () {
      const { api: sql } = yield* Db

      /** Held until the statement's end, so that what is stored for it is not stored for one that was just disabled. */
      const enabled = (orgId: string, webhookId: string) => sql`
        select id from webhook
        where org_id = ${orgId}::uuid and id = ${webhookId}::uuid and disabled_at is null and ${inOrg(sql, orgId)}
        for share`

      const disabled = new Refused({
        code: "webhook_disabled",
        message: "The endpoint is disabled, and nothing is sent to it; enable it first"
      })

      /** Why nothing was made: it was before, or the endpoint is disabled. */
      const madeBefore = Effect.fnUntraced(function* (orgId: string, webhookId: string, id: string) {
        const [row] = yield* repeatable(sql<Row>`
          select ${columns(sql)}
          from webhook_delivery d join webhook_event e on e.org_id = d.org_id and e.id = d.event_id
          where d.org_id = ${orgId}::uuid and d.webhook_id = ${webhookId}::uuid and d.id = ${id}::uuid
            and ${inOrg(sql, orgId)}`)
        return row === undefined ? yield* disabled : yield* deliveryOf(row)
      })

      return DeliveryLog.of({
        // Index: webhook_delivery_list.
        list: Effect.fn("WebhookDeliveries.list")(function* (orgId, webhookId, filter, limit, before) {
          const { state = null, event = null } = filter
          const rows = yield* repeatable(sql<Row>`
            select ${columns(sql)}
            from webhook_delivery d join webhook_event e on e.org_id = d.org_id and e.id = d.event_id
            where d.org_id = ${orgId}::uuid and d.webhook_id = ${webhookId}::uuid and ${inOrg(sql, orgId)}
              and (${before ?? null}::bigint is null or d.seq < ${before ?? null}::bigint)
              and (${state}::text is null or d.state = ${state}::text)
              and (${event}::text is null or e.type = ${event}::text)
            order by d.seq desc limit ${limit}::int`)
          return yield* Effect.forEach(rows, deliveryOf)
        }),
        test: Effect.fn("WebhookDeliveries.test")(function* (orgId, webhookId, id, actor) {
          const gate = inOrg(sql, orgId)
          const [row] = yield* orUnavailable(sql<Row>`
            with target as materialized (${enabled(orgId, webhookId)}),
            e as (
              insert into webhook_event (org_id, id, type, data)
              select ${orgId}::uuid, ${id}::uuid, ${testType}::text, '{}'::jsonb from target where ${gate}
              on conflict (org_id, id) do nothing
              returning *
            ), d as (
              insert into webhook_delivery (org_id, id, webhook_id, event_id)
              select ${orgId}::uuid, ${id}::uuid, t.id, e.id from target t cross join e where ${gate}
              returning *
            ), told as (select webhook_id as id from d),
            audited as (${auditOf(sql, orgId, actor, "told")})
            select ${columns(sql)} from d cross join e`)
          return row === undefined ? yield* madeBefore(orgId, webhookId, id) : yield* deliveryOf(row)
        }),
        redeliver: Effect.fn("WebhookDeliveries.redeliver")(
          function* (orgId, webhookId, deliveryId, id, actor) {
            const gate = inOrg(sql, orgId)
            const [found] = yield* repeatable(sql<{ readonly event: string }>`
            select event_id as event from webhook_delivery
            where org_id = ${orgId}::uuid and id = ${deliveryId}::uuid and webhook_id = ${webhookId}::uuid and ${gate}`)
            if (found === undefined) return Option.none()
            const [row] = yield* orUnavailable(sql<Row>`
            with target as materialized (${enabled(orgId, webhookId)}),
            d as (
              insert into webhook_delivery (org_id, id, webhook_id, event_id)
              select ${orgId}::uuid, ${id}::uuid, t.id, ${found.event}::uuid from target t where ${gate}
              on conflict (org_id, id) do nothing
              returning *
            ), told as (select webhook_id as id from d),
            audited as (${auditOf(sql, orgId, actor, "told")})
            select ${columns(sql)} from d join webhook_event e on e.org_id = d.org_id and e.id = d.event_id
            where ${gate}`)
            const delivery = row === undefined ? madeBefore(orgId, webhookId, id) : deliveryOf(row)
            return Option.some(yield* delivery)
          }
        )
      })
    })
  )
}

type Row = Omit<Delivery, "attempts"> & { readonly attempts: unknown }

const decodeAttempts = Schema.decodeUnknownEffect(Schema.Array(Attempt))
/** What is in there is what `WebhookDeliveries.ts` wrote. */
const deliveryOf = (row: Row): Effect.Effect<Delivery> =>
  Effect.map(Effect.orDie(decodeAttempts(row.attempts)), (attempts) => ({ ...row, attempts }))

const columns = (sql: Sql) =>
  sql.literal(`d.id, d.seq::text as seq, e.id as "eventId", e.type, e.project_id as "projectId", e.data,
    e.created_at as "eventAt", d.state, d.attempts, d.created_at as "createdAt",
    case when d.state = 'waiting' then d.due_at end as "nextAttemptAt"`)
