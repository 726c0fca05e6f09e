import * as Layer from "effect/Layer"
import * as aiGateway from "#reconcilers/ai-gateway.ts"
import type { Server } from "#src/feature.ts"
import type { AiGateways } from "./api.ts"
import { GatewayKeys } from "./GatewayKeys.ts"
import { GatewayUsage } from "./GatewayUsage.ts"
import * as handlers from "./handlers.ts"
import { ModelUpstreams } from "./ModelUpstreams.ts"
import * as sweep from "./sweep.ts"

export const server: Server<typeof AiGateways> = {
  handlers: handlers.layer.pipe(Layer.provide([GatewayKeys.layer, GatewayUsage.layer])),
  reconcilers: aiGateway.layer.pipe(Layer.provide(ModelUpstreams.none)),
  loops: sweep.layer
}
