import * as envVariables from "#reconcilers/env-variables.ts"
import type { Env } from "#src/api/definition/env.ts"
import * as handlers from "#src/api/env.ts"
import type { Server } from "#src/feature.ts"

export const server: Server<typeof Env> = {
  handlers: handlers.layer,
  reconcilers: envVariables.layer
}
