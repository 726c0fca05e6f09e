import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import * as gate from "#src/visitors/gate.ts"
import { Visits } from "#src/visitors/Visits.ts"
import * as agent from "./agent/layer.ts"
import * as startFromFiles from "./agent/start-from-files.ts"
import { checkAppsDomain } from "./apps-domain.ts"
import { Certificates } from "./certificates/Certificates.ts"
import * as certificates from "./certificates/loop.ts"
import { EdgeNodes } from "./EdgeNodes.ts"
import { EdgeSites } from "./EdgeSites.ts"
import { RequestRecords } from "./requests/RequestRecords.ts"

export const server: Server = {
  handlers: Layer.empty,
  loops: certificates.layer,
  edgeBeforeStore: startFromFiles.layer,
  edge: agent.layer.pipe(
    Layer.provide([
      Certificates.layer,
      EdgeNodes.layer,
      EdgeSites.layer,
      RequestRecords.layer,
      gate.layer.pipe(Layer.provide(Visits.layer))
    ]),
    Layer.merge(Layer.effectDiscard(checkAppsDomain))
  )
}
