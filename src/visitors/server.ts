import * as Layer from "effect/Layer"
import * as accessPolicy from "#reconcilers/access-policy.ts"
import { EdgeNodes } from "#src/edge/EdgeNodes.ts"
import { EdgeSites } from "#src/edge/EdgeSites.ts"
import type { Server } from "#src/feature.ts"
import { Sessions } from "#src/identity/Sessions.ts"
import { AccessInvitations } from "./AccessInvitations.ts"
import type { Access } from "./api.ts"
import * as handlers from "./handlers.ts"
import * as pages from "./pages/routes.ts"
import { SiteModes } from "./SiteModes.ts"
import { Visits } from "./Visits.ts"

export const server: Server<typeof Access> = {
  handlers: handlers.layer.pipe(Layer.provide(AccessInvitations.layer)),
  routes: pages.layer.pipe(Layer.provide([Visits.layer, EdgeSites.layer, Sessions.layer])),
  reconcilers: accessPolicy.layer.pipe(Layer.provide([SiteModes.layer, EdgeSites.layer, EdgeNodes.layer]))
}
