import * as Layer from "effect/Layer"
import type { Manifest } from "#src/api/definition/manifest.ts"
import * as handlers from "#src/api/manifest.ts"
import type { Server } from "#src/feature.ts"
import { Plans } from "#src/store/Plans.ts"
import { Manifests } from "./Manifests.ts"

export const server: Server<typeof Manifest> = {
  handlers: handlers.layer.pipe(Layer.provide(Manifests.layer.pipe(Layer.provide(Plans.layer))))
}
