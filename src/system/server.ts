import type { System } from "#src/api/definition/system.ts"
import * as handlers from "#src/api/system.ts"
import type { Server } from "#src/feature.ts"

export const server: Server<typeof System> = { handlers: handlers.layerSystem }
