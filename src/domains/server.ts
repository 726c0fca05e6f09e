import * as Layer from "effect/Layer"
import * as domain from "#reconcilers/domain.ts"
import { RateLimits } from "#src/access/RateLimits.ts"
import { Certificates } from "#src/edge/certificates/Certificates.ts"
import { EdgeNodes } from "#src/edge/EdgeNodes.ts"
import { EdgeSites } from "#src/edge/EdgeSites.ts"
import type { Server } from "#src/feature.ts"
import { Interventions } from "#src/store/Interventions.ts"
import type { Domains } from "./api.ts"
import { Claims } from "./Claims.ts"
import { Resolver } from "./dns/Resolver.ts"
import * as handlers from "./handlers.ts"
import { Probe } from "./Probe.ts"

const names = Resolver.layer.pipe(Layer.provide(RateLimits.layer))
const shared = [Claims.layer, EdgeSites.layer, Certificates.layer] as const

export const server: Server<typeof Domains> = {
  handlers: handlers.layer.pipe(Layer.provide([...shared, EdgeNodes.layer, names, Interventions.layer])),
  reconcilers: domain.layer.pipe(
    Layer.provide([...shared, names, Probe.layer.pipe(Layer.provide(EdgeNodes.layer))])
  )
}
