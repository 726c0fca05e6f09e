import * as Layer from "effect/Layer"
import { EdgeSites } from "#src/edge/EdgeSites.ts"
import type { Server } from "#src/feature.ts"
import type { SpeedInsights } from "./api.ts"
import * as handlers from "./handlers.ts"
import * as intake from "./intake.ts"
import { Measurements } from "./Measurements.ts"
import * as partitions from "./partitions.ts"
import * as rollup from "./rollup.ts"
import { SpeedBatches } from "./SpeedBatches.ts"
import { SpeedProjects } from "./SpeedProjects.ts"

const projects = SpeedProjects.layer.pipe(Layer.provide(EdgeSites.layer))

export const server: Server<typeof SpeedInsights> = {
  handlers: handlers.layer.pipe(Layer.provide([projects, Measurements.layer])),
  routes: intake.layer.pipe(Layer.provide([projects, SpeedBatches.layer])),
  loops: Layer.mergeAll(partitions.layer, rollup.layer)
}
