import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import { Sessions } from "#src/identity/Sessions.ts"
import { AgentGrants } from "./AgentGrants.ts"
import { AgentTokens } from "./AgentTokens.ts"
import type { AgentGrants as AgentGrantOperations } from "./api.ts"
import { Clients } from "./Clients.ts"
import * as handlers from "./handlers.ts"
import * as pages from "./pages/routes.ts"
import * as protocol from "./protocol/routes.ts"
import { authorizationRequests } from "./services.ts"

export const server: Server<typeof AgentGrantOperations> = {
  handlers: handlers.layer.pipe(Layer.provide(AgentGrants.layer)),
  routes: Layer.merge(
    pages.layer.pipe(Layer.provide([AgentGrants.layer, authorizationRequests, Sessions.layer])),
    protocol.layer.pipe(Layer.provide([AgentTokens.layer, Clients.layer]))
  )
}
