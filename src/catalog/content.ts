/**
 * What the catalogue says: where things run, how much of what can be asked for, and what it costs. What is built in holds
 * for an operator who says nothing; a file replaces parts of it.
 */
import * as Schema from "effect/Schema"
import { type CacheSku, CpuKind, cpuKinds, type DatabaseSku, localRegion, Region } from "#schemas/catalog.ts"
import type { RegionIds } from "#schemas/placement.ts"
import { anyPool } from "#schemas/placement.ts"

/** US dollars. So fine that a byte and a second have a price. */
const Price = Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: 1_000_000 }))

export const RegionEntry = Schema.Struct({
  // Work of a region is in the pool of that name.
  id: Region.check(
    Schema.makeFilter((id: string) => (id === anyPool ? `"${anyPool}" is reserved` : undefined))
  ),
  name: Schema.NonEmptyString,
  city: Schema.String,
  country: Schema.String,
  continent: Schema.String
}).annotate({ identifier: "CatalogRegion" })
export type RegionEntry = typeof RegionEntry.Type

export const idsOf = ({ regions: [first, ...others] }: CatalogContent): RegionIds => [
  first.id,
  ...others.map(({ id }) => id)
]

const bounds = (lowest: number, highest: number, whole: boolean) => {
  const number = whole ? Schema.Int : Schema.Finite
  const bound = number.check(Schema.isBetween({ minimum: lowest, maximum: highest }))
  return Schema.Struct({ min: bound, max: bound }).check(
    Schema.makeFilter(({ min, max }) => (min <= max ? undefined : "min is more than max"))
  )
}

export const ExecutionLimits = Schema.Struct({
  cpus: bounds(0.01, 1024, false),
  memoryMb: bounds(6, 16 * 1024 * 1024, true),
  timeoutSeconds: bounds(1, 30 * 86_400, true),
  /** Null: as many as they like. */
  maxActiveExecutionsPerProject: Schema.NullOr(
    Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 100_000 }))
  ),
  maxEnvVariables: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 10_000 }))
})
export type ExecutionLimits = typeof ExecutionLimits.Type

const ComputePrice = Schema.Struct({ perVcpuSecondUsd: Price, perMibSecondUsd: Price })

/** What a file may say. What it leaves out stays as it is built in. */
export const CatalogFile = Schema.Struct({
  regions: Schema.optionalKey(Schema.NonEmptyArray(RegionEntry)),
  /** US dollars for an hour of one server: of a database, of each of its standbys, of a branch. */
  databases: Schema.optionalKey(
    Schema.Struct({
      "db-n1": Schema.optionalKey(Price),
      "db-s1": Schema.optionalKey(Price),
      "db-s2": Schema.optionalKey(Price)
    })
  ),
  /** US dollars for an hour of one server. */
  caches: Schema.optionalKey(
    Schema.Struct({
      "cache-n1": Schema.optionalKey(Price),
      "cache-s1": Schema.optionalKey(Price),
      "cache-s2": Schema.optionalKey(Price)
    })
  ),
  /** US dollars for a second of one instance. A paused one costs its memory alone. */
  apps: Schema.optionalKey(
    Schema.Struct({
      perVcpuSecondUsd: Schema.optionalKey(Price),
      perMibSecondUsd: Schema.optionalKey(Price)
    })
  ),
  /** Of what databases and caches take on the disk. */
  disk: Schema.optionalKey(Schema.Struct({ perGibMonthUsd: Schema.optionalKey(Price) })),
  /** Of what the repository of this machine holds, sealed and compressed. */
  backups: Schema.optionalKey(Schema.Struct({ perGibMonthUsd: Schema.optionalKey(Price) })),
  executions: Schema.optionalKey(
    Schema.Struct({
      cpuKinds: Schema.optionalKey(Schema.NonEmptyArray(CpuKind)),
      limits: Schema.optionalKey(
        Schema.Struct({
          cpus: Schema.optionalKey(ExecutionLimits.fields.cpus),
          memoryMb: Schema.optionalKey(ExecutionLimits.fields.memoryMb),
          timeoutSeconds: Schema.optionalKey(ExecutionLimits.fields.timeoutSeconds),
          maxActiveExecutionsPerProject: Schema.optionalKey(
            ExecutionLimits.fields.maxActiveExecutionsPerProject
          ),
          maxEnvVariables: Schema.optionalKey(ExecutionLimits.fields.maxEnvVariables)
        })
      ),
      prices: Schema.optionalKey(
        Schema.Struct({
          shared: Schema.optionalKey(ComputePrice),
          performance: Schema.optionalKey(ComputePrice)
        })
      )
    })
  )
})
export type CatalogFile = typeof CatalogFile.Type

export interface CatalogContent {
  /** New resources are placed in the first one unless something else is said. */
  readonly regions: readonly [RegionEntry, ...ReadonlyArray<RegionEntry>]
  /** US dollars for an hour of one server, by size. */
  readonly databases: Readonly<Record<DatabaseSku, number>>
  readonly caches: Readonly<Record<CacheSku, number>>
  /** US dollars for a second of one instance, by what it may use. */
  readonly apps: typeof ComputePrice.Type
  readonly disk: { readonly perGibMonthUsd: number }
  readonly backups: { readonly perGibMonthUsd: number }
  readonly executions: {
    readonly architectures: ReadonlyArray<string>
    readonly cpuKinds: ReadonlyArray<CpuKind>
    readonly limits: ExecutionLimits
    readonly prices: Readonly<Record<CpuKind, typeof ComputePrice.Type>>
  }
}

/** As images name them. */
const architecture = process.arch === "x64" ? "amd64" : process.arch

export const builtIn: CatalogContent = {
  regions: [{ id: localRegion, name: "This machine", city: "", country: "", continent: "" }],
  databases: { "db-n1": 0.004, "db-s1": 0.016, "db-s2": 0.04 },
  caches: { "cache-n1": 0.003, "cache-s1": 0.01, "cache-s2": 0.036 },
  apps: { perVcpuSecondUsd: 0.000003, perMibSecondUsd: 0.000000001 },
  disk: { perGibMonthUsd: 0.1 },
  backups: { perGibMonthUsd: 0.05 },
  executions: {
    architectures: [architecture],
    cpuKinds,
    limits: {
      cpus: { min: 0.1, max: 4 },
      memoryMb: { min: 32, max: 8192 },
      timeoutSeconds: { min: 1, max: 86_400 },
      maxActiveExecutionsPerProject: 20,
      maxEnvVariables: 200
    },
    prices: {
      shared: { perVcpuSecondUsd: 0.000006, perMibSecondUsd: 0.000000001 },
      performance: { perVcpuSecondUsd: 0.000012, perMibSecondUsd: 0.000000001 }
    }
  }
}

export const replaced = (file: CatalogFile): CatalogContent => {
  const { executions } = builtIn
  return {
    regions: file.regions ?? builtIn.regions,
    databases: { ...builtIn.databases, ...file.databases },
    caches: { ...builtIn.caches, ...file.caches },
    apps: { ...builtIn.apps, ...file.apps },
    disk: { ...builtIn.disk, ...file.disk },
    backups: { ...builtIn.backups, ...file.backups },
    executions: {
      architectures: executions.architectures,
      cpuKinds: file.executions?.cpuKinds ?? executions.cpuKinds,
      limits: { ...executions.limits, ...file.executions?.limits },
      prices: { ...executions.prices, ...file.executions?.prices }
    }
  }
}
