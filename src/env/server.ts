import * as envVariables from "#reconcilers/env-variables.ts"
import type { Server } from "#src/feature.ts"
import type { Env } from "./api.ts"
import * as handlers from "./handlers.ts"

export const server: Server<typeof Env> = {
  handlers: handlers.layer,
  reconcilers: envVariables.layer
}
