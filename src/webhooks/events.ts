/** How whatever makes something happen says so. */
import { randomUUIDv7 } from "node:crypto"
import { type Fragment, isFragment, type Statement } from "effect/sql/Statement"
import type { Json } from "#schemas/kind.ts"
import { inOrg, type Sql } from "#src/store/Db.ts"
import type { EventType } from "./event-types.ts"

export interface PlatformEvent {
  readonly orgId: string
  readonly projectId: string | null
  readonly type: EventType
  /** A fragment where only the statement knows it: an expression of type jsonb. */
  readonly data: Json | Fragment
}

/**
 * CTEs that store the event and a delivery for each endpoint that wants it, for the statement that makes it happen:
 *
 *     with spent as (update ... returning ...),
 *     ${emission(sql, event, sql`exists (select from spent)`)}
 *     select ...
 *
 * There is no moment at which the one has happened and the other is not known. Where nobody wants it nothing is stored.
 * A statement that tells of several things gives the CTEs of each a prefix.
 */
export const emission = (sql: Sql, event: PlatformEvent, condition?: Fragment, prefix = ""): Fragment => {
  const gate = inOrg(sql, event.orgId)
  const named = (name: string) => sql(`${prefix}${name}`)
  const data = isFragment(event.data) ? event.data : sql`${sql.json(event.data)}::jsonb`
  return sql`
    ${named("wanted")} as materialized (
      select id from webhook
      where org_id = ${event.orgId}::uuid and disabled_at is null and ${event.type}::text = any (events) and ${gate}
        and ${condition ?? sql`true`}
    ),
    ${named("happened")} as (
      insert into webhook_event (org_id, id, type, project_id, data)
      select ${event.orgId}::uuid, ${randomUUIDv7()}::uuid, ${event.type}::text, ${event.projectId}::uuid,
        ${data}
      where ${gate} and exists (select from ${named("wanted")})
      returning id
    ),
    ${named("deliveries")} as (
      insert into webhook_delivery (org_id, webhook_id, event_id)
      select ${event.orgId}::uuid, w.id, h.id from ${named("wanted")} w
        cross join ${named("happened")} h where ${gate}
    )`
}

/**
 * The same for statements of the engine that make many things happen, in any number of organizations. `told` is a CTE of
 * theirs with the columns event_id, org_id, project_id, type and data, one row for each event.
 */
export const emissions = (sql: Sql, told: string): Fragment => sql`
  wanted as materialized (
    select t.event_id, t.org_id, t.project_id, t.type, t.data, w.id as webhook_id
    from ${sql(told)} t join webhook w
      on w.org_id = t.org_id and w.disabled_at is null and t.type = any (w.events)
  ),
  happened as (
    insert into webhook_event (org_id, id, type, project_id, data)
    select distinct on (event_id) org_id, event_id, type, project_id, data from wanted
  ),
  deliveries as (
    insert into webhook_delivery (org_id, webhook_id, event_id)
    select org_id, webhook_id, event_id from wanted
  )`

/** How far each delivery of these events has come: rows of event_id, state and webhook_id. Index: webhook_delivery_event. */
export const deliveryStates = (
  sql: Sql,
  orgId: string,
  events: ReadonlyArray<string>
): Statement<{
  readonly eventId: string
  readonly state: StoredDeliveryState
  readonly webhookId: string
}> => sql`
  select d.event_id as "eventId", d.state, d.webhook_id as "webhookId"
  from webhook_delivery d
  where d.org_id = ${orgId}::uuid and d.event_id = any (${events}::uuid[]) and ${inOrg(sql, orgId)}
  order by d.seq`

export type StoredDeliveryState = "waiting" | "delivered" | "failed"

export interface StoredEvent {
  readonly id: string
  readonly type: string
  readonly orgId: string
  readonly projectId: string | null
  readonly data: unknown
  readonly createdAt: Date
}

/** What is sent: the same bytes at every try. */
export const bodyOf = (event: StoredEvent): string =>
  JSON.stringify({
    id: event.id,
    type: event.type,
    createdAt: event.createdAt.toISOString(),
    organizationId: event.orgId,
    projectId: event.projectId,
    data: event.data
  })
