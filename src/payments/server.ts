import * as Layer from "effect/Layer"
import * as customerPayments from "#reconcilers/customer-payments.ts"
import type { Server } from "#src/feature.ts"
import { AppServiceTokens } from "#src/projects/AppServiceTokens.ts"
import type { CustomerPayments } from "./api.ts"
import { Comparisons } from "./Comparisons.ts"
import { Connections } from "./Connections.ts"
import * as compare from "./compare.ts"
import * as handlers from "./handlers.ts"
import { Intents } from "./Intents.ts"
import * as intake from "./intake.ts"
import { PaymentEvents } from "./PaymentEvents.ts"
import { Processor } from "./Processor.ts"
import { Projections } from "./Projections.ts"
import { Requests } from "./Requests.ts"
import * as runtime from "./runtime.ts"
import * as work from "./work.ts"

const stored = Layer.mergeAll(Connections.layer, Projections.layer, PaymentEvents.layer)
const services = Layer.mergeAll(stored, Processor.layer)
const requests = Requests.layer.pipe(Layer.provide([services, Intents.layer]))

export const server: Server<typeof CustomerPayments> = {
  handlers: handlers.layer.pipe(Layer.provide([services, requests])),
  routes: Layer.mergeAll(
    intake.layer.pipe(Layer.provide(services)),
    runtime.layer.pipe(Layer.provide(AppServiceTokens.layer))
  ),
  reconcilers: customerPayments.layer.pipe(Layer.provide(services)),
  loops: Layer.mergeAll(work.layer, compare.layer).pipe(Layer.provide([services, Comparisons.layer]))
}
