import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import type { Metrics } from "./api.ts"
import * as handlers from "./handlers.ts"
import { MetricHistory } from "./MetricHistory.ts"
import { MetricSamples } from "./MetricSamples.ts"
import * as otlp from "./otlp.ts"
import * as pack from "./pack.ts"
import * as sampler from "./store/sampler.ts"

export const server: Server<typeof Metrics> = {
  handlers: handlers.layer.pipe(Layer.provide(MetricHistory.layer)),
  loops: Layer.mergeAll(
    sampler.layer.pipe(Layer.provide([MetricSamples.layer, sampler.subjects])),
    pack.layer,
    otlp.layer
  )
}
