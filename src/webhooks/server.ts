import * as Layer from "effect/Layer"
import type { Webhooks as Operations } from "#src/api/definition/webhooks.ts"
import * as handlers from "#src/api/webhooks.ts"
import type { Server } from "#src/feature.ts"
import { Mail } from "#src/mail/Mail.ts"
import { WebhookDeliveries } from "#src/store/WebhookDeliveries.ts"
import { Webhooks } from "#src/store/Webhooks.ts"
import { Deliveries } from "./Deliveries.ts"
import * as deliver from "./deliver.ts"

export const server: Server<typeof Operations> = {
  handlers: handlers.layer.pipe(Layer.provide([Webhooks.layer, WebhookDeliveries.layer])),
  loops: deliver.layer.pipe(Layer.provide(Deliveries.layer.pipe(Layer.provide(Mail.layer))))
}
