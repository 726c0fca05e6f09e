import * as Layer from "effect/Layer"
import * as accessPolicy from "#reconcilers/access-policy.ts"
import type { Server } from "#src/feature.ts"
import { AccessInvitations } from "./AccessInvitations.ts"
import type { Access } from "./api.ts"
import * as handlers from "./handlers.ts"
import { SiteModes } from "./SiteModes.ts"

export const server: Server<typeof Access> = {
  handlers: handlers.layer.pipe(Layer.provide(AccessInvitations.layer)),
  reconcilers: accessPolicy.layer.pipe(Layer.provide(SiteModes.layer))
}
