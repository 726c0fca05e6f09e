import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import { Sessions } from "#src/identity/Sessions.ts"
import { AgentGrants } from "./AgentGrants.ts"
import type { AgentGrants as AgentGrantOperations } from "./api.ts"
import * as handlers from "./handlers.ts"
import * as pages from "./pages/routes.ts"
import { authorizationRequests } from "./services.ts"

export const server: Server<typeof AgentGrantOperations> = {
  handlers: handlers.layer.pipe(Layer.provide(AgentGrants.layer)),
  routes: pages.layer.pipe(Layer.provide([AgentGrants.layer, authorizationRequests, Sessions.layer]))
}
