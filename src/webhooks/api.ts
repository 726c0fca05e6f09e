/** Endpoints that are told of what happens in an organization, by signed HTTPS requests. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import {
  Deleted,
  Id,
  idempotencyKey,
  orgParams,
  page,
  pageQuery,
  Timestamp
} from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"
import { eventTypes } from "./event-types.ts"

const Events = Schema.Array(Schema.Literals(eventTypes))
const WantedEvents = Events.check(Schema.isMinLength(1), Schema.isMaxLength(100)).annotate({
  description: "What to be told of; named twice is once"
})
const Url = Schema.String.check(
  Schema.isMaxLength(2000),
  Schema.isPattern(/^[Hh][Tt][Tt][Pp][Ss]:\/\/[^\s]+$/u, { expected: "an https:// URL" })
).annotate({ format: "uri" })
const Secret = Schema.String.annotate({
  description: "Signs what is sent: whsec_ and 40 hex digits. Shown this once"
})

const endpoint = {
  id: Id,
  url: Schema.String.annotate({ format: "uri" }),
  events: Events,
  createdAt: Timestamp
}
export const WebhookView = Schema.Struct({
  ...endpoint,
  enabled: Schema.Boolean,
  failingSince: Schema.NullOr(Timestamp).annotate({
    description: "Nothing has arrived since; after five days the endpoint is disabled"
  }),
  disabledAt: Schema.NullOr(Timestamp),
  disabledReason: Schema.NullOr(Schema.String)
}).annotate({ identifier: "Webhook" })
export const WebhookList = Schema.Array(WebhookView)
export const NewWebhook = Schema.Struct({ ...endpoint, secret: Secret }).annotate({
  identifier: "NewWebhook"
})
export const RotatedSecret = Schema.Struct({
  secret: Secret,
  previousValidUntil: Timestamp.annotate({ description: "Until then the previous secret signs as well" })
}).annotate({ identifier: "RotatedWebhookSecret" })

const DeliveryState = Schema.Literals(["waiting", "delivered", "failed"])
export const DeliveryView = Schema.Struct({
  id: Id,
  state: DeliveryState,
  createdAt: Timestamp,
  nextAttemptAt: Schema.NullOr(Timestamp),
  event: Schema.Struct({
    id: Id.annotate({
      description: "The same for every delivery of it: receivers tell repeats by it"
    }),
    type: Schema.String,
    projectId: Schema.NullOr(Id),
    createdAt: Timestamp,
    data: Schema.Unknown
  }),
  attempts: Schema.Array(
    Schema.Struct({
      startedAt: Timestamp,
      durationMs: Schema.Int,
      statusCode: Schema.NullOr(Schema.Int).annotate({ description: "null: no answer came" }),
      error: Schema.NullOr(Schema.String)
    })
  ).annotate({ description: "Oldest first" })
}).annotate({ identifier: "WebhookDelivery" })
export const DeliveryPage = page(DeliveryView)

const base = "/v1/orgs/:orgId/webhooks"
const one = `${base}/:webhookId` as const
const params = { ...orgParams, webhookId: Id }
const target = { type: "record", param: "webhookId", table: "webhook" } as const

export const Webhooks = group(
  "webhooks",
  "Endpoints that are told of what happens in an organization, by signed HTTPS requests."
).add(
  HttpApiEndpoint.get("list", base, {
    params: orgParams,
    success: WebhookList,
    error: problems()
  }).annotateMerge(operation("webhooks.list", "read", "admin", "List webhooks, oldest first")),
  HttpApiEndpoint.post("create", base, {
    params: orgParams,
    headers: idempotencyKey,
    payload: Schema.Struct({ url: Url, events: WantedEvents }),
    success: NewWebhook.pipe(HttpApiSchema.status(201)),
    error: bodyProblems()
  }).annotateMerge(
    operation("webhooks.create", "write", "admin", "Have events sent to an HTTPS address", {
      sensitive: true
    })
  ),
  HttpApiEndpoint.patch("update", one, {
    params,
    payload: Schema.Struct({
      url: Schema.optionalKey(Url),
      events: Schema.optionalKey(WantedEvents),
      enabled: Schema.optionalKey(
        Schema.Boolean.annotate({ description: "false gives up what waits; true starts anew" })
      )
    }),
    success: WebhookView,
    error: bodyProblems()
  }).annotateMerge(
    operation("webhooks.update", "write", "admin", "Change address or events of a webhook, or switch it", {
      sensitive: true,
      target
    })
  ),
  HttpApiEndpoint.delete("delete", one, {
    params,
    success: Deleted,
    error: problems()
  }).annotateMerge(
    operation("webhooks.delete", "destructive", "admin", "Delete a webhook; nothing is sent to it any more", {
      sensitive: true,
      target
    })
  ),
  HttpApiEndpoint.post("rotateSecret", `${one}/secret/rotate`, {
    params,
    headers: idempotencyKey,
    payload: Schema.Struct({
      overlapSeconds: Schema.optionalKey(
        Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 7 * 86_400 })).annotate({
          description: "How long the previous secret signs as well; default a day"
        })
      )
    }),
    success: RotatedSecret,
    error: bodyProblems()
  }).annotateMerge(
    operation("webhooks.rotateSecret", "write", "admin", "Replace the signing secret of a webhook", {
      sensitive: true,
      target
    })
  ),
  HttpApiEndpoint.post("test", `${one}/test`, {
    params,
    headers: idempotencyKey,
    success: DeliveryView.pipe(HttpApiSchema.status(202)),
    error: problems()
  }).annotateMerge(
    operation("webhooks.test", "write", "admin", "Send an event that tells of nothing", { target })
  ),
  HttpApiEndpoint.get("listDeliveries", `${one}/deliveries`, {
    params,
    query: {
      ...pageQuery,
      state: Schema.optionalKey(DeliveryState),
      event: Schema.optionalKey(Schema.String.check(Schema.isMaxLength(100)))
    },
    success: DeliveryPage,
    error: problems()
  }).annotateMerge(
    operation("webhooks.listDeliveries", "read", "admin", "List what was sent, newest first, for 30 days", {
      target
    })
  ),
  HttpApiEndpoint.post("redeliver", `${one}/deliveries/:deliveryId/redeliver`, {
    params: { ...params, deliveryId: Id },
    headers: idempotencyKey,
    success: DeliveryView.pipe(HttpApiSchema.status(202)),
    error: problems()
  }).annotateMerge(
    operation("webhooks.redeliver", "write", "admin", "Send the event of a delivery again", { target })
  )
)
