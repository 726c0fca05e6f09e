import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { RedisServers } from "#src/infra/redis/RedisServers.ts"
import * as host from "./host/loop.ts"
import { MetricSamples } from "./MetricSamples.ts"
import * as pack from "./pack.ts"
import * as sampler from "./store/sampler.ts"

const machine = [RedisServers.layer, ContainerEngine.layer, Installation.layer] as const

export const server: Server = {
  handlers: Layer.empty,
  loops: Layer.mergeAll(
    host.layer.pipe(Layer.provide([MetricSamples.layer, ...machine])),
    sampler.layer.pipe(Layer.provide([MetricSamples.layer, sampler.subjects])),
    pack.layer
  )
}
