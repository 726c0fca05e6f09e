/** The deliveries as those who make them see it: whose turn it is, and what became of it. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import type { Fragment } from "effect/sql/Statement"
import { AppConfig } from "#src/config.ts"
import type { Room } from "#src/loops/leased.ts"
import { insertMail, Mail } from "#src/mail/Mail.ts"
import * as messages from "#src/mail/messages.ts"
import { Db, repeatable, type Sql } from "#src/store/Db.ts"
import { KeyRing, type KeyRingError } from "#src/store/KeyRing.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { Attempt } from "./DeliveryLog.ts"
import { bodyOf } from "./events.ts"
import { openSecrets } from "./secrets.ts"

/** A delivery that this process may try now, and no other process until the lease ends. */
export interface Claimed {
  readonly orgId: string
  readonly id: string
  readonly webhookId: string
  readonly eventId: string
  readonly url: string
  readonly body: string
  /** Since it was stored. */
  readonly disabled: boolean
  /** Tries that failed so far. */
  readonly failed: number
  /** Seconds that nothing has arrived at the endpoint. */
  readonly failingFor: number
  readonly lease: bigint
  /** When it was claimed, by the clock of the store. */
  readonly claimedAt: number
  readonly secrets: Effect.Effect<ReadonlyArray<Redacted.Redacted>, KeyRingError>
}

/** Tries at a time for one endpoint by one process. */
const perEndpoint = 8
/** Longer than a try takes. */
export const leaseSeconds = 60

export class WebhookDeliveries extends Context.Service<
  WebhookDeliveries,
  {
    readonly claim: (room: Room<Claimed>) => Effect.Effect<ReadonlyArray<Claimed>, StoreUnavailable>
    readonly delivered: (delivery: Claimed, attempt: Attempt) => Effect.Effect<void, StoreUnavailable>
    /** Undefined: it was the last try. */
    readonly failed: (
      delivery: Claimed,
      attempt: Attempt,
      againIn: number | undefined
    ) => Effect.Effect<void, StoreUnavailable>
    /** Nothing is sent to the endpoint any more, and the admins of its organization are told why. */
    readonly disable: (
      delivery: Claimed,
      attempt: Attempt,
      reason: string
    ) => Effect.Effect<void, StoreUnavailable>
    /** Nobody tries any more. */
    readonly giveUp: (delivery: Claimed) => Effect.Effect<void, StoreUnavailable>
    /** Nobody tried. */
    readonly giveBack: (delivery: Claimed, seconds: number) => Effect.Effect<void, StoreUnavailable>
    /** Seconds until the first that waits is due, or until its lease ends; undefined: nothing waits. */
    readonly nextIn: Effect.Effect<number | undefined, StoreUnavailable>
    /** How many wait for a try, or for the next one. */
    readonly waiting: Effect.Effect<number, StoreUnavailable>
  }
>()("svc/webhooks/WebhookDeliveries") {
  static readonly layer = Layer.effect(
    WebhookDeliveries,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const ring = yield* KeyRing
      const mail = yield* Mail
      const { publicUrl } = yield* AppConfig

      const settled = (delivery: Claimed, attempt: Attempt, set: Fragment) => sql`
        update webhook_delivery set ${set}, lease_token = null,
          attempts = attempts || ${sql.json([attempt])}::jsonb
        where org_id = ${delivery.orgId}::uuid and id = ${delivery.id}::uuid and lease_token = ${delivery.lease}
          and state = 'waiting'
        returning org_id, webhook_id`
      const ended = (state: "delivered" | "failed") => sql`state = ${state}, settled_at = now()`

      return WebhookDeliveries.of({
        claim: Effect.fnUntraced(function* (room) {
          const rows = yield* repeatable(claim(sql, room))
          return rows.map(
            (row): Claimed => ({
              orgId: row.orgId,
              id: row.id,
              webhookId: row.webhookId,
              eventId: row.eventId,
              url: row.url,
              body: bodyOf({ ...row, id: row.eventId }),
              disabled: row.disabled,
              failed: row.failed,
              failingFor: row.failingFor,
              lease: row.lease,
              claimedAt: row.claimedAt,
              secrets: Effect.map(
                openSecrets(ring, row.orgId, row.webhookId, { keyId: row.keyId, bytes: row.sealed }),
                (secrets) => (row.overlaps ? secrets : secrets.slice(0, 1))
              )
            })
          )
        }),
        delivered: (delivery, attempt) =>
          Effect.asVoid(
            repeatable(sql`
              with d as (${settled(delivery, attempt, ended("delivered"))})
              update webhook w set failing_since = null from d
              where w.org_id = d.org_id and w.id = d.webhook_id and w.failing_since is not null`)
          ),
        failed: (delivery, attempt, againIn) =>
          Effect.asVoid(
            repeatable(sql`
              with d as (${settled(
                delivery,
                attempt,
                againIn === undefined
                  ? ended("failed")
                  : sql`due_at = now() + make_interval(secs => ${againIn}::float8)`
              )})
              update webhook w set failing_since = now() from d
              where w.org_id = d.org_id and w.id = d.webhook_id and w.failing_since is null`)
          ),
        disable: Effect.fnUntraced(function* (delivery, attempt, reason) {
          const { orgId, webhookId, url } = delivery
          const admins = yield* repeatable(sql<{ readonly email: string; readonly organization: string }>`
            select a.email, o.name as organization
            from member m join account a on a.id = m.user_id join organization o on o.id = m.org_id
            where m.org_id = ${orgId}::uuid and m.role in ('owner', 'admin') order by a.email limit 50`)
          const mails = admins.map(({ email, organization }, i) => {
            const letter = mail.prepare({
              ...messages.webhookDisabled(organization, new URL(url).host, reason, publicUrl),
              to: email,
              orgId,
              usefulSeconds: 7 * 86_400
            })
            return sql`, ${sql.literal(`mail_${i}`)} as (${insertMail(sql, letter, sql`exists (select from w)`)})`
          })
          yield* repeatable(sql`
            with d as (${settled(delivery, attempt, ended("failed"))}),
            w as (
              update webhook w set disabled_at = now(), disabled_reason = ${reason}::text,
                failing_since = coalesce(failing_since, now())
              from d where w.org_id = d.org_id and w.id = d.webhook_id and w.disabled_at is null
              returning w.org_id, w.id
            ), others as (
              update webhook_delivery o set state = 'failed', settled_at = now(), lease_token = null
              from w where o.org_id = w.org_id and o.webhook_id = w.id and o.state = 'waiting'
                and o.id <> ${delivery.id}::uuid
            )
            ${sql.join("", false)(mails)}
            select ${webhookId}::uuid from d`)
        }),
        giveUp: (delivery) =>
          Effect.asVoid(
            repeatable(sql`
              update webhook_delivery set ${ended("failed")}, lease_token = null
              where org_id = ${delivery.orgId}::uuid and id = ${delivery.id}::uuid and lease_token = ${delivery.lease}
                and state = 'waiting'`)
          ),
        giveBack: (delivery, seconds) =>
          Effect.asVoid(
            repeatable(sql`
              update webhook_delivery set lease_token = null, due_at = now() + make_interval(secs => ${seconds}::float8)
              where org_id = ${delivery.orgId}::uuid and id = ${delivery.id}::uuid and lease_token = ${delivery.lease}
                and state = 'waiting'`)
          ),
        nextIn: Effect.map(
          // Index: webhook_delivery_next.
          repeatable(sql<{ readonly next: number | null }>`
            select extract(epoch from min(due_at) - now())::float8 as next
            from webhook_delivery where state = 'waiting'`),
          ([row]) => row?.next ?? undefined
        ),
        waiting: Effect.map(
          repeatable(sql<{ readonly count: number }>`
            select count(*)::int as count from webhook_delivery where state = 'waiting'`),
          ([row]) => row?.count ?? 0
        )
      })
    })
  )
}

interface Row {
  readonly orgId: string
  readonly id: string
  readonly webhookId: string
  readonly eventId: string
  readonly type: string
  readonly projectId: string | null
  readonly data: unknown
  readonly createdAt: Date
  readonly url: string
  readonly keyId: string
  readonly sealed: Uint8Array
  readonly overlaps: boolean
  readonly disabled: boolean
  readonly failed: number
  readonly failingFor: number
  readonly lease: bigint
  readonly claimedAt: number
}

/**
 * Some of what is due for each endpoint, those first that have waited longest, so that an endpoint with a long queue,
 * or one that takes its time, holds up nobody else; and no more for an organization than it has room for. The lease is
 * the time at which it is due again, should its holder vanish.
 */
const claim = (sql: Sql, { most, orgs, running }: Room<Claimed>) => {
  const busy: Record<string, number> = {}
  for (const { webhookId } of running) busy[webhookId] = (busy[webhookId] ?? 0) + 1
  const rooms = Object.fromEntries([...orgs.holders].map(([org, { room }]) => [org, room]))
  return sql<Row>`
  with recursive queue as (
    -- Index: webhook_delivery_due; one step for each endpoint that something waits for.
    (select org_id, webhook_id, due_at from webhook_delivery where state = 'waiting'
      order by webhook_id, due_at limit 1)
    union all
    select n.org_id, n.webhook_id, n.due_at from queue q cross join lateral (
      select d.org_id, d.webhook_id, d.due_at from webhook_delivery d
      where d.state = 'waiting' and d.webhook_id > q.webhook_id order by d.webhook_id, d.due_at limit 1) n
  ), turn as (
    select q.* from (
      select webhook_id, due_at,
        ${perEndpoint}::int - coalesce((${sql.json(busy)}::jsonb ->> webhook_id::text)::int, 0) as room,
        coalesce((${sql.json(rooms)}::jsonb ->> org_id::text)::int, ${orgs.others}::int) as org_room
      from queue where due_at <= now()) q
    where q.room > 0 and q.org_room > 0 order by q.due_at limit ${most}::int
  ), found as materialized (
    select d.*, t.org_room from turn t cross join lateral (
      select w.org_id, w.id, w.due_at from webhook_delivery w
      where w.state = 'waiting' and w.webhook_id = t.webhook_id and w.due_at <= now()
      order by w.due_at limit t.room for update skip locked) d
  ), chosen as materialized (
    select org_id, id from (
      select f.*, row_number() over (partition by org_id order by due_at) as nth from found f) f
    where nth <= org_room order by due_at limit ${most}::int
  ), leased as (
    update webhook_delivery d set lease_token = nextval('lease_token'),
      due_at = now() + make_interval(secs => ${leaseSeconds}::int)
    from chosen c where d.org_id = c.org_id and d.id = c.id
    returning d.*
  )
  select l.org_id as "orgId", l.id, l.webhook_id as "webhookId", l.event_id as "eventId", e.type,
    e.project_id as "projectId", e.data, e.created_at as "createdAt", w.url, w.key_id as "keyId", w.sealed,
    coalesce(w.previous_until > now(), false) as overlaps, w.disabled_at is not null as disabled,
    jsonb_array_length(l.attempts) as failed, coalesce(extract(epoch from now() - w.failing_since), 0)::float8 as "failingFor", l.lease_token as lease,
    (extract(epoch from clock_timestamp()) * 1000)::float8 as "claimedAt"
  from leased l
  join webhook w on w.org_id = l.org_id and w.id = l.webhook_id
  join webhook_event e on e.org_id = l.org_id and e.id = l.event_id`
}
