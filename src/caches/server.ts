import * as Layer from "effect/Layer"
import * as cache from "#reconcilers/cache/cache.ts"
import type { Server } from "#src/feature.ts"
import { RedisServers } from "#src/infra/redis/RedisServers.ts"
import type { Caches } from "./api.ts"
import * as handlers from "./handlers.ts"

export const server: Server<typeof Caches> = {
  handlers: handlers.layer,
  reconcilers: cache.layer.pipe(Layer.provide(RedisServers.layer))
}
