/** `Cache`: a Redis-compatible server that speaks TLS only. */
import * as Schema from "effect/Schema"
import { CacheSku, defaultCacheSku, Region } from "./catalog.ts"
import { progress, warning } from "./condition.ts"
import { inputOf, withDefault } from "./input.ts"
import { defineKind } from "./kind.ts"
import { listSection, usualEnvironment } from "./manifest-mapping.ts"

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
  sku: withDefault(CacheSku, defaultCacheSku, "How much memory it has for data"),
  region: Region,
  persistence: withDefault(CachePersistence, "aof"),
  evictionPolicy: withDefault(CacheEvictionPolicy, "allkeys-lru"),
  /** Rises with every rotation; the password itself is sealed under the secret field `password`. */
  credentialVersion: withDefault(Schema.Int, 1)
}).annotate({ identifier: "CacheSpec" })
export type CacheSpec = typeof CacheSpec.Type

const internal = ["credentialVersion"] as const
/** What users may give of a cache, besides its name. */
export const CacheInput = inputOf(CacheSpec, internal)

export const CacheStatus = Schema.Struct({
  host: Schema.String,
  port: Schema.Int,
  memoryMb: Schema.Int,
  /** Version of the server program, such as `redis 7.0.15`. */
  server: Schema.String,
  certificateExpiresAt: Schema.String,
  /** Since when the server was seen busy with a script, or not answering; absent while it answers. */
  unansweredSince: Schema.optionalKey(Schema.String),
  /** When it was last seen so. */
  unansweredSeenAt: Schema.optionalKey(Schema.String),
  /** Processes that the kernel ended for the memory limit, as far as that was told. Absent: none. */
  memoryKills: Schema.optionalKey(Schema.Int)
}).annotate({ identifier: "CacheStatus" })
export type CacheStatus = typeof CacheStatus.Type

export const CacheFacts = Schema.Struct({
  /** It was asked to keep its data, and its append-only file held all of it. Until `persistence: none` is asked for. */
  persisted: Schema.optionalKey(Schema.Boolean),
  /** The run of the server (its `run_id`) that was last ready. Another one began with an empty memory. */
  run: Schema.optionalKey(Schema.String)
})
export type CacheFacts = typeof CacheFacts.Type

export const Cache = defineKind({
  name: "Cache",
  summary: "A Redis-compatible cache that accepts TLS connections only.",
  scope: "environment",
  placement: "host",
  spec: CacheSpec,
  status: CacheStatus,
  facts: CacheFacts,
  fields: Object.keys(CacheSpec.fields),
  immutable: ["region"],
  internal,
  generated: ["password"],
  references: [],
  singleton: false,
  deleteRole: "owner",
  reasons: {
    ServerStarting: progress("The server process was started and does not answer yet"),
    ServerDown: warning("The server process is gone; it is started again"),
    ScriptBusy: warning("A script keeps the server busy; it is ended when it takes too long"),
    NotAnswering: warning(
      "The server process is there and does not answer; it is started again when that lasts"
    ),
    OutOfMemory: warning("The kernel ended a process of the server because its memory limit was reached"),
    DataLost: warning(
      "It was to keep its data, and its data folder is gone; it is made empty only when somebody says so"
    ),
    StartedEmpty: warning("It was started again without what it held in memory")
  },
  manifest: listSection("caches", "Redis-compatible caches that accept TLS connections only", {
    environment: usualEnvironment,
    ...CacheInput.fields
  }),
  deadlineSeconds: 300
})
