/** Real HTTPS receivers, a real store, and deliverers as processes have them. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import { Webhook as Standard } from "standardwebhooks"
import { AppConfig } from "#src/config.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Mail } from "#src/mail/Mail.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { newReservation } from "#src/store/Reservation.ts"
import { DeliveryLog } from "#src/webhooks/DeliveryLog.ts"
import * as deliver from "#src/webhooks/deliver.ts"
import type { EventType } from "#src/webhooks/event-types.ts"
import { emission } from "#src/webhooks/events.ts"
import { WebhookDeliveries } from "#src/webhooks/WebhookDeliveries.ts"
import { Webhooks } from "#src/webhooks/Webhooks.ts"
import type { Received, Responder } from "#test/outbound/receiver.ts"
import { receiver } from "#test/outbound/receiver.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization } from "#test/setup/fixtures.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"
import { eventually } from "#test/setup/wait.ts"

const secrets = memorySecrets()

export const fixture = Layer.mergeAll(Webhooks.layer, DeliveryLog.layer, WebhookDeliveries.layer).pipe(
  Layer.provideMerge(Mail.layer),
  Layer.provideMerge(KeyRing.layerEphemeral),
  Layer.provideMerge(Outbound.layer),
  Layer.provideMerge(CertificateAuthority.layer.pipe(Layer.provide(secrets.layer))),
  Layer.provideMerge(AppConfig.layerWith({ publicUrl: "https://svc.example" })),
  Layer.provideMerge(testDb()),
  Layer.provide(Logger.layer([]))
)

/** The loop of one process, until the scope closes. */
export const deliverer = Layer.build(Layer.fresh(deliver.layer).pipe(Layer.provide(Logger.layer([]))))

export const subscribe = Effect.fnUntraced(function* (
  orgId: string,
  url: string,
  events: readonly [EventType, ...ReadonlyArray<EventType>] = ["budget.alert"]
) {
  const { webhook, secret } = yield* (yield* Webhooks).create(
    orgId,
    { url, events },
    actor,
    newReservation(false)
  )
  return { id: webhook.id, secret: Redacted.value(secret) }
})

/** An organization with one endpoint that answers as told. */
export const listener = Effect.fnUntraced(function* (respond?: Responder) {
  const org = yield* makeOrganization()
  const there = yield* receiver(respond)
  return { orgId: org.id, ...there, ...(yield* subscribe(org.id, there.url())) }
})

/** Something happens; nothing else is stored with it. */
export const happens = Effect.fnUntraced(function* (
  orgId: string,
  type: EventType = "budget.alert",
  data: { readonly [key: string]: string | number } = {}
) {
  const { engine: sql } = yield* Db
  yield* sql`with ${emission(sql, { orgId, projectId: null, type, data })} select 1`
})

export interface Stored {
  readonly id: string
  readonly state: string
  readonly attempts: ReadonlyArray<{
    readonly startedAt: string
    readonly durationMs: number
    readonly statusCode: number | null
    readonly error: string | null
  }>
  readonly dueIn: number
  readonly dueAt: Date
}
export const stored = Effect.fnUntraced(function* (webhookId: string) {
  const { engine: sql } = yield* Db
  return yield* sql<Stored>`
    select id, state, attempts, extract(epoch from due_at - now())::float8 as "dueIn", due_at as "dueAt"
    from webhook_delivery where webhook_id = ${webhookId}::uuid order by seq`
})

/** What rests between two tries is due now. */
export const hasten = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  yield* sql`update webhook_delivery set due_at = now() where state = 'waiting' and lease_token is null`
  yield* sql`select pg_notify('svc_webhook', '')`
})

export const until = <A, E, R>(
  self: Effect.Effect<A, E, R>,
  holds: (value: A) => boolean
): Effect.Effect<A, E, R> => eventually("the deliveries have come so far", self, holds)

/** Throws unless a library of Standard Webhooks accepts what was received. */
export const verified = (secret: string, { body, headers }: Received) => {
  const own = {
    "webhook-id": String(headers["webhook-id"]),
    "webhook-timestamp": String(headers["webhook-timestamp"]),
    "webhook-signature": String(headers["webhook-signature"])
  }
  new Standard(secret).verify(body, own)
  return JSON.parse(body)
}
