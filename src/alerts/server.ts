import * as Layer from "effect/Layer"
import * as alert from "#reconcilers/alert.ts"
import type { Server } from "#src/feature.ts"
import { Mail } from "#src/mail/Mail.ts"
import { AlertHistory } from "./AlertHistory.ts"
import { AlertRules } from "./AlertRules.ts"
import { Alerts } from "./Alerts.ts"
import type { Alerts as Operations } from "./api.ts"
import * as evaluate from "./evaluate.ts"
import * as handOver from "./hand-over.ts"
import * as handlers from "./handlers.ts"

export const server: Server<typeof Operations> = {
  handlers: handlers.layer.pipe(Layer.provide([Alerts.layer, AlertHistory.layer])),
  reconcilers: alert.layer.pipe(Layer.provide(AlertRules.layer)),
  loops: Layer.merge(evaluate.layer, handOver.layer.pipe(Layer.provide(Mail.layer)))
}
