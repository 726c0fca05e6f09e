import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import { MetricSamples } from "./MetricSamples.ts"
import * as pack from "./pack.ts"
import * as sampler from "./store/sampler.ts"

export const server: Server = {
  handlers: Layer.empty,
  loops: Layer.merge(sampler.layer.pipe(Layer.provide([MetricSamples.layer, sampler.subjects])), pack.layer)
}
