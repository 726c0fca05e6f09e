import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import { AgentGrants } from "./AgentGrants.ts"
import { AgentTokens } from "./AgentTokens.ts"
import type { AgentGrants as AgentGrantOperations } from "./api.ts"
import { Clients } from "./Clients.ts"
import * as handlers from "./handlers.ts"
import * as protocol from "./protocol/routes.ts"

export const server: Server<typeof AgentGrantOperations> = {
  handlers: handlers.layer.pipe(Layer.provide(AgentGrants.layer)),
  routes: protocol.layer.pipe(Layer.provide([AgentTokens.layer, Clients.layer]))
}
