import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import type { Manifest } from "./api.ts"
import * as handlers from "./handlers.ts"
import * as services from "./services.ts"

export const server: Server<typeof Manifest> = {
  handlers: handlers.layer.pipe(Layer.provide(services.layer))
}
