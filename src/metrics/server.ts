import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { RedisServers } from "#src/infra/redis/RedisServers.ts"
import type { Metrics } from "./api.ts"
import * as handlers from "./handlers.ts"
import * as host from "./host/loop.ts"
import { MetricHistory } from "./MetricHistory.ts"
import { MetricSamples } from "./MetricSamples.ts"
import * as otlp from "./otlp.ts"
import * as pack from "./pack.ts"
import * as sampler from "./store/sampler.ts"

const machine = [RedisServers.layer, ContainerEngine.layer, Installation.layer] as const

export const server: Server<typeof Metrics> = {
  handlers: handlers.layer.pipe(Layer.provide(MetricHistory.layer)),
  loops: Layer.mergeAll(
    host.layer.pipe(Layer.provide([MetricSamples.layer, ...machine])),
    sampler.layer.pipe(Layer.provide([MetricSamples.layer, sampler.subjects])),
    pack.layer,
    otlp.layer
  )
}
