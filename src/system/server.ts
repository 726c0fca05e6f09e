import type { Server } from "#src/feature.ts"
import type { System } from "./api.ts"
import * as handlers from "./handlers.ts"

export const server: Server<typeof System> = { handlers: handlers.layerSystem }
