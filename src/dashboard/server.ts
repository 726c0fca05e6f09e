import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import * as routes from "./routes.ts"

export const server: Server = { handlers: Layer.empty, routes: routes.layer }
