import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import { Mail } from "#src/mail/Mail.ts"
import type { Webhooks as Operations } from "./api.ts"
import { DeliveryLog } from "./DeliveryLog.ts"
import * as deliver from "./deliver.ts"
import * as handlers from "./handlers.ts"
import { WebhookDeliveries } from "./WebhookDeliveries.ts"
import { Webhooks } from "./Webhooks.ts"

export const server: Server<typeof Operations> = {
  handlers: handlers.layer.pipe(Layer.provide([Webhooks.layer, DeliveryLog.layer])),
  loops: deliver.layer.pipe(Layer.provide(WebhookDeliveries.layer.pipe(Layer.provide(Mail.layer))))
}
