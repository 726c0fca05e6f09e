/** Handlers of `webhooks.*`. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { looksLikeUid } from "#schemas/names.ts"
import { answer } from "#src/api/answer.ts"
import { Cursors } from "#src/api/cursor.ts"
import { Api } from "#src/api/definition/api.ts"
import { defaultPageSize } from "#src/api/definition/fields.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { fromStore, invalid, notFound, type Problem, problem } from "#src/api/problem.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { DeliveryPage, WebhookList } from "./api.ts"
import { type Delivery, DeliveryLog } from "./DeliveryLog.ts"
import { canonical } from "./event-types.ts"
import { type Webhook, Webhooks } from "./Webhooks.ts"

const daySeconds = 86_400
const noWebhook = notFound("webhook")

export const layer = HttpApiBuilder.group(
  Api,
  "webhooks",
  Effect.fnUntraced(function* (handlers) {
    const webhooks = yield* Webhooks
    const deliveries = yield* DeliveryLog
    const outbound = yield* Outbound
    const cursors = yield* Cursors

    /** In the one spelling that it is compared in. */
    const checked = (url: string): Effect.Effect<string, Problem> =>
      Effect.mapBoth(outbound.checkAddress(url), {
        onSuccess: ({ href }) => href,
        onFailure: ({ message }) => invalid([{ pointer: "/url", message }])
      })

    return handlers.handleAll(
      handlersOf(Api.groups.webhooks)({
        list: Effect.fnUntraced(function* () {
          const { orgId } = yield* RequestScope
          const found = yield* Effect.mapError(webhooks.list(orgId), fromStore)
          return answer(WebhookList, found.map(view))
        }),
        create: Effect.fnUntraced(function* ({ payload }) {
          const { orgId, caller, reservation } = yield* RequestScope
          const made = { url: yield* checked(payload.url), events: canonical(payload.events) }
          const { webhook, secret } = yield* Effect.mapError(
            webhooks.create(orgId, made, { ...caller.actor, outcome: 201 }, reservation),
            conflict
          )
          const { id, url, events, createdAt } = webhook
          return { id, url, events, createdAt: createdAt.toISOString(), secret: Redacted.value(secret) }
        }),
        update: Effect.fnUntraced(function* ({ params, payload }) {
          const { orgId, caller } = yield* RequestScope
          const change = {
            url: payload.url === undefined ? undefined : yield* checked(payload.url),
            events: payload.events === undefined ? undefined : canonical(payload.events),
            enabled: payload.enabled
          }
          const changed = yield* Effect.mapError(
            webhooks.update(orgId, params.webhookId, change, caller.actor),
            conflict
          )
          return Option.isSome(changed) ? view(changed.value) : yield* noWebhook
        }),
        delete: Effect.fnUntraced(function* ({ params }) {
          const { orgId, caller } = yield* RequestScope
          const gone = yield* Effect.mapError(
            webhooks.remove(orgId, params.webhookId, caller.actor),
            fromStore
          )
          return gone ? { ok: true as const } : yield* noWebhook
        }),
        rotateSecret: Effect.fnUntraced(function* ({ params, payload }) {
          const { orgId, caller, reservation } = yield* RequestScope
          const { overlapSeconds = daySeconds } = payload
          const rotated = yield* Effect.mapError(
            webhooks.rotate(orgId, params.webhookId, overlapSeconds, caller.actor, reservation),
            fromStore
          )
          if (Option.isNone(rotated)) return yield* noWebhook
          const { secret, previousUntil } = rotated.value
          return { secret: Redacted.value(secret), previousValidUntil: previousUntil.toISOString() }
        }),
        test: Effect.fnUntraced(function* ({ params }) {
          const { orgId, caller, reservation } = yield* RequestScope
          const actor = { ...caller.actor, outcome: 202 }
          const id = reservation.uid
          return deliveryView(
            yield* Effect.mapError(deliveries.test(orgId, params.webhookId, id, actor), fromStore)
          )
        }),
        listDeliveries: Effect.fnUntraced(function* ({ params, query }) {
          const { orgId } = yield* RequestScope
          const { limit = defaultPageSize, cursor, ...filter } = query
          const list = `deliveries ${orgId} ${params.webhookId}`
          const [before] = (yield* cursors.decode(list, cursor)) ?? []
          const found = yield* Effect.mapError(
            deliveries.list(orgId, params.webhookId, filter, limit + 1, before),
            fromStore
          )
          const { items, nextCursor } = cursors.page(list, found, limit, (last) => [last.seq])
          return answer(DeliveryPage, {
            items: items.map(deliveryView),
            nextCursor
          })
        }),
        redeliver: Effect.fnUntraced(function* ({ params }) {
          const { orgId, caller, reservation } = yield* RequestScope
          if (!looksLikeUid(params.deliveryId)) return yield* notFound("delivery")
          const actor = { ...caller.actor, outcome: 202 }
          const { webhookId, deliveryId } = params
          const again = yield* Effect.mapError(
            deliveries.redeliver(orgId, webhookId, deliveryId, reservation.uid, actor),
            fromStore
          )
          return Option.isSome(again) ? deliveryView(again.value) : yield* notFound("delivery")
        })
      })
    )
  })
)

const conflict = (error: Parameters<typeof fromStore>[0]): Problem =>
  error._tag === "NameTaken" ? problem(409, "url_taken", error.message) : fromStore(error)

const view = ({ id, url, events, createdAt, failingSince, disabledAt, disabledReason }: Webhook) => ({
  id,
  url,
  events,
  createdAt: createdAt.toISOString(),
  enabled: disabledAt === null,
  failingSince: failingSince?.toISOString() ?? null,
  disabledAt: disabledAt?.toISOString() ?? null,
  disabledReason
})

const deliveryView = (delivery: Delivery) => ({
  id: delivery.id,
  state: delivery.state,
  createdAt: delivery.createdAt.toISOString(),
  nextAttemptAt: delivery.nextAttemptAt?.toISOString() ?? null,
  event: {
    id: delivery.eventId,
    type: delivery.type,
    projectId: delivery.projectId,
    createdAt: delivery.eventAt.toISOString(),
    data: delivery.data
  },
  attempts: delivery.attempts
})
