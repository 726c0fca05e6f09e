/** What became of an alert: what it did by itself, what people did, and whom it was told. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Db, inOrg, repeatable, type Sql } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { deliveryStates } from "#src/webhooks/events.ts"
import type { AlertChange, AlertDeliveryState, AlertResource } from "./words.ts"

export interface AlertDelivery {
  readonly channel: "mail" | "webhook"
  /** An address, or the id of a webhook, whose URL may hold a secret. Null: all owners and admins. */
  readonly destination: string | null
  readonly state: AlertDeliveryState
}

export interface AlertHistoryEntry {
  readonly id: string
  /** Position in the list. */
  readonly seq: string
  readonly at: Date
  readonly change: typeof AlertChange.Type
  readonly value: number | null
  readonly threshold: number | null
  readonly resource: AlertResource | null
  readonly incidentId: string | null
  readonly actor: string | null
  readonly reason: string | null
  readonly deliveries: ReadonlyArray<AlertDelivery>
}

export class AlertHistory extends Context.Service<
  AlertHistory,
  {
    /** Newest first, at most `limit`, older than the one at position `before`. */
    readonly list: (
      orgId: string,
      uid: string,
      limit: number,
      before?: string
    ) => Effect.Effect<ReadonlyArray<AlertHistoryEntry>, StoreUnavailable>
  }
>()("svc/alerts/AlertHistory") {
  static readonly layer = Layer.effect(
    AlertHistory,
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      return AlertHistory.of({
        list: Effect.fn("AlertHistory.list")(function* (orgId, uid, limit, before) {
          // Index: alert_history_list.
          const rows = yield* repeatable(sql<
            Omit<AlertHistoryEntry, "deliveries"> & { readonly eventId: string | null }
          >`
            select id, h.seq::text as seq, at, change, value, threshold, resource, incident_id as "incidentId", actor,
              reason, event_id as "eventId"
            from alert_history h
            where org_id = ${orgId}::uuid and alert_uid = ${uid}::uuid and ${inOrg(sql, orgId)}
              and (${before ?? null}::bigint is null or h.seq < ${before ?? null}::bigint)
            order by h.seq desc limit ${limit}::int`)
          const events = rows.flatMap(({ eventId }) => eventId ?? [])
          const deliveries = Map.groupBy(
            events.length === 0 ? [] : yield* deliveriesOf(sql, orgId, events),
            ({ eventId }) => eventId
          )
          return rows.map(({ eventId, ...entry }) => ({
            ...entry,
            deliveries: (deliveries.get(eventId ?? "") ?? []).map(({ eventId: _, ...delivery }) => delivery)
          }))
        })
      })
    })
  )
}

/** Mail server and receiver of webhooks are asked in the same words. */
const deliveriesOf = Effect.fnUntraced(function* (sql: Sql, orgId: string, events: ReadonlyArray<string>) {
  const [mails, webhooks] = yield* Effect.all(
    [
      // Index: alert_mail_pkey. Of several mails to one destination the one that is furthest from its goal counts.
      repeatable(sql<AlertDelivery & { readonly eventId: string }>`
        select m.event_id as "eventId", 'mail' as channel, d.destination,
          case when m.handed_at is null then 'waiting' when m.mails is null then 'withheld'
            when cardinality(i.ids) = 0 then 'undeliverable'
            else coalesce((select case when bool_or(s.state = 'waiting') then 'waiting'
              when bool_or(s.state = 'failed') then 'failed' end from svc_mail_states(i.ids) s), 'delivered')
          end as state
        from alert_mail m
        cross join lateral unnest(m.destinations) with ordinality as d(destination, place)
        cross join lateral (
          select array(select jsonb_array_elements_text(m.mails -> (d.place - 1)::int)::uuid) as ids) i
        where m.org_id = ${orgId}::uuid and m.event_id = any (${events}::uuid[]) and ${inOrg(sql, orgId)}
        order by m.created_at, m.event_id, d.place`),
      repeatable(deliveryStates(sql, orgId, events))
    ],
    { concurrency: 2 }
  )
  return [
    ...mails,
    ...webhooks.map(({ eventId, state, webhookId }) => ({
      eventId,
      channel: "webhook" as const,
      destination: webhookId,
      state
    }))
  ]
})
