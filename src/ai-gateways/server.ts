import * as Layer from "effect/Layer"
import * as aiGateway from "#reconcilers/ai-gateway.ts"
import type { Server } from "#src/feature.ts"
import type { AiGateways } from "./api.ts"
import { GatewayCallers } from "./GatewayCallers.ts"
import { GatewayKeys } from "./GatewayKeys.ts"
import { GatewayUsage } from "./GatewayUsage.ts"
import * as handlers from "./handlers.ts"
import { Ledger } from "./Ledger.ts"
import * as runtime from "./runtime/routes.ts"
import { modelUpstreams, Upstreams } from "./runtime/Upstreams.ts"
import * as sweep from "./sweep.ts"

export const server: Server<typeof AiGateways> = {
  handlers: handlers.layer.pipe(Layer.provide([GatewayKeys.layer, GatewayUsage.layer])),
  routes: runtime.layer.pipe(Layer.provide([GatewayCallers.layer, Ledger.layer, Upstreams.layer])),
  reconcilers: aiGateway.layer.pipe(Layer.provide(modelUpstreams.pipe(Layer.provide(Upstreams.layer)))),
  loops: sweep.layer
}
