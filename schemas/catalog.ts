/** Regions by their form, and the sizes that can be asked for. Which regions there are, the catalogue in force says. */
import * as Schema from "effect/Schema"

/** The region of a machine that runs alone. */
export const localRegion = "local"
/** A region id, by its form only: documents and stored specifications outlive a list of regions. */
export const Region = Schema.String.check(
  Schema.isPattern(/^[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?$/u, {
    expected: "1 to 64 lowercase letters, digits or dashes, with no dash at either end"
  })
).annotate({
  identifier: "Region",
  description: "Region id; a machine that runs alone offers `local`",
  examples: [localRegion]
})

/** How processor time is given: from what is left of the machine, or for oneself. */
export const cpuKinds = ["shared", "performance"] as const
export const CpuKind = Schema.Literals(cpuKinds).annotate({ identifier: "CpuKind" })
export type CpuKind = typeof CpuKind.Type

const MiB = 1024 * 1024

export interface CacheSize {
  readonly memoryMb: number
  /** Processors that it may keep busy. */
  readonly cpus: number
  readonly maxClients: number
}
/** Memory is what the server may use for data (`maxmemory`), in MiB. */
export const cacheSizes = {
  "cache-n1": { memoryMb: 256, cpus: 1, maxClients: 1_000 },
  "cache-s1": { memoryMb: 1024, cpus: 1, maxClients: 2_000 },
  "cache-s2": { memoryMb: 4096, cpus: 2, maxClients: 4_000 }
} as const satisfies Record<string, CacheSize>
export const CacheSku = Schema.Literals(["cache-n1", "cache-s1", "cache-s2"]).annotate({
  identifier: "CacheSku"
})
export type CacheSku = typeof CacheSku.Type
export const defaultCacheSku = "cache-n1"

export interface DatabaseSize {
  /** What all processes of the server may use together, in MiB. */
  readonly memoryMb: number
  /** Processors that it may keep busy. */
  readonly cpus: number
  /** Bytes of `shared_buffers`. */
  readonly sharedBuffers: number
  /** Bytes of `work_mem`, for each sort or hash. */
  readonly workMem: number
  readonly maxConnections: number
}
/** `db-n1` is made to idle in a few tens of megabytes, so that many small databases fit on one machine. */
export const databaseSizes = {
  "db-n1": { memoryMb: 512, cpus: 1, sharedBuffers: 8 * MiB, workMem: 2 * MiB, maxConnections: 25 },
  "db-s1": { memoryMb: 2048, cpus: 2, sharedBuffers: 128 * MiB, workMem: 4 * MiB, maxConnections: 60 },
  "db-s2": { memoryMb: 4096, cpus: 4, sharedBuffers: 512 * MiB, workMem: 8 * MiB, maxConnections: 120 }
} as const satisfies Record<string, DatabaseSize>
const databaseSkus = ["db-n1", "db-s1", "db-s2"] as const
export const DatabaseSku = Schema.Literals(databaseSkus).annotate({
  identifier: "DatabaseSku"
})
export type DatabaseSku = typeof DatabaseSku.Type
export const defaultDatabaseSku = "db-n1"
/** What may be the size of a database, for documents that outlive a list of sizes. */
export const DatabaseSkuName = Schema.NonEmptyString.check(Schema.isMaxLength(64)).annotate({
  description: "Size; whether there is such a size, a plan says",
  examples: [...databaseSkus]
})
