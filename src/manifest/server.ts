import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import type { Manifest } from "./api.ts"
import * as handlers from "./handlers.ts"
import { Manifests } from "./Manifests.ts"
import { Plans } from "./Plans.ts"

export const server: Server<typeof Manifest> = {
  handlers: handlers.layer.pipe(Layer.provide(Manifests.layer.pipe(Layer.provide(Plans.layer))))
}
