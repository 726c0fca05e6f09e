/** `Cache`: a Redis-compatible server that speaks TLS only. */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { CacheSku, Region } from "./catalog.ts"
import { defineKind } from "./kind.ts"
import { listSection } from "./manifest-mapping.ts"

export const CachePersistence = Schema.Literals(["none", "aof"]).annotate({
  description: "`aof` appends every write to a file (fsync each second); `none` keeps data in memory only"
})
export const CacheEvictionPolicy = Schema.Literals([
  "allkeys-lru",
  "allkeys-lfu",
  "volatile-lru",
  "noeviction"
]).annotate({
  description: "What happens to a write when the memory is full"
})

export const CacheSpec = Schema.Struct({
  sku: CacheSku.pipe(Schema.withDecodingDefaultKey(Effect.succeed("cache-n1"))),
  region: Region,
  persistence: CachePersistence.pipe(Schema.withDecodingDefaultKey(Effect.succeed("aof"))),
  evictionPolicy: CacheEvictionPolicy.pipe(Schema.withDecodingDefaultKey(Effect.succeed("allkeys-lru"))),
  /** Rises with every rotation; the password itself is sealed under the secret field `password`. */
  credentialVersion: Schema.Int.pipe(Schema.withDecodingDefaultKey(Effect.succeed(1)))
}).annotate({ identifier: "CacheSpec" })
export type CacheSpec = typeof CacheSpec.Type

export const CacheStatus = Schema.Struct({
  host: Schema.String,
  port: Schema.Int,
  memoryMb: Schema.Int,
  /** Version of the server program, such as `redis 7.0.15`. */
  server: Schema.String,
  certificateExpiresAt: Schema.String,
  /** Processes that the kernel ended for the memory limit, as far as that was told. Absent: none. */
  memoryKills: Schema.optionalKey(Schema.Int)
}).annotate({ identifier: "CacheStatus" })
export type CacheStatus = typeof CacheStatus.Type

export const Cache = defineKind({
  name: "Cache",
  summary: "A Redis-compatible cache that accepts TLS connections only.",
  scope: "environment",
  spec: CacheSpec,
  status: CacheStatus,
  fields: Object.keys(CacheSpec.fields),
  immutable: ["region"],
  internal: ["credentialVersion"],
  generated: ["password"],
  after: ["Environment"],
  singleton: false,
  deleteRole: "owner",
  reasons: {
    ServerStarting: "The server process was started and does not answer yet",
    ServerDown: "The server process is gone; it is started again",
    OutOfMemory: "The kernel ended a process of the server because its memory limit was reached"
  },
  manifest: listSection("caches"),
  deadlineSeconds: 300
})
