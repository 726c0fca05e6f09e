import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import * as agent from "./agent/layer.ts"
import { checkAppsDomain } from "./apps-domain.ts"
import { Certificates } from "./certificates/Certificates.ts"
import { EdgeNodes } from "./EdgeNodes.ts"
import { EdgeSites } from "./EdgeSites.ts"

export const server: Server = {
  handlers: Layer.empty,
  edge: agent.layer.pipe(
    Layer.provide([Certificates.layer, EdgeNodes.layer, EdgeSites.layer]),
    Layer.merge(Layer.effectDiscard(checkAppsDomain))
  )
}
