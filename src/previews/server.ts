import * as preview from "#reconcilers/preview.ts"
import type { Server } from "#src/feature.ts"
import type { Previews } from "./api.ts"
import * as handlers from "./handlers.ts"

export const server: Server<typeof Previews> = {
  handlers: handlers.layer,
  reconcilers: preview.layer
}
