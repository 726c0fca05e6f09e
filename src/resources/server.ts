import * as Layer from "effect/Layer"
import type { Resources } from "#src/api/definition/resources.ts"
import * as handlers from "#src/api/resources.ts"
import type { Server } from "#src/feature.ts"
import { Interventions } from "#src/store/Interventions.ts"

export const server: Server<typeof Resources> = {
  handlers: handlers.layer.pipe(Layer.provide(Interventions.layer))
}
