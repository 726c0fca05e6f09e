import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import { AgentGrants } from "./AgentGrants.ts"
import type { AgentGrants as AgentGrantOperations } from "./api.ts"
import * as handlers from "./handlers.ts"

export const server: Server<typeof AgentGrantOperations> = {
  handlers: handlers.layer.pipe(Layer.provide(AgentGrants.layer))
}
