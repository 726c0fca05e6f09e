import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import * as route from "./route.ts"

export const server: Server = { handlers: Layer.empty, routes: route.layer }
