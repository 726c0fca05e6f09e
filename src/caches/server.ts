import * as Layer from "effect/Layer"
import * as cache from "#reconcilers/cache.ts"
import * as handlers from "#src/api/caches.ts"
import type { Caches } from "#src/api/definition/caches.ts"
import type { Server } from "#src/feature.ts"
import { RedisServers } from "#src/infra/RedisServers.ts"

export const server: Server<typeof Caches> = {
  handlers: handlers.layer,
  reconcilers: cache.layer.pipe(Layer.provide(RedisServers.layer))
}
