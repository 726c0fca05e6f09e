import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import { Interventions } from "#src/store/Interventions.ts"
import type { Resources } from "./api.ts"
import * as handlers from "./handlers.ts"

export const server: Server<typeof Resources> = {
  handlers: handlers.layer.pipe(Layer.provide(Interventions.layer))
}
