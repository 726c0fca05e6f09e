import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import { Mail } from "#src/mail/Mail.ts"
import type { Webhooks as Operations } from "./api.ts"
import { WebhookDeliveries } from "./DeliveryLog.ts"
import * as deliver from "./deliver.ts"
import * as handlers from "./handlers.ts"
import { Deliveries } from "./WebhookDeliveries.ts"
import { Webhooks } from "./Webhooks.ts"

export const server: Server<typeof Operations> = {
  handlers: handlers.layer.pipe(Layer.provide([Webhooks.layer, WebhookDeliveries.layer])),
  loops: deliver.layer.pipe(Layer.provide(Deliveries.layer.pipe(Layer.provide(Mail.layer))))
}
