/** How a cache looks to callers. */
import { Cache } from "#schemas/cache.ts"
import { cacheSizes } from "#schemas/catalog.ts"
import { decodeWith, serviceStatus } from "#src/api/views.ts"
import type { ListedRecord } from "#src/store/records.ts"

const decode = decodeWith(Cache)

export const cacheView = (record: ListedRecord) => {
  const { spec, status } = decode(record)
  return {
    id: record.uid,
    name: record.name,
    environment: record.environment ?? "",
    status: serviceStatus(record),
    region: spec.region,
    sku: spec.sku,
    memoryMb: cacheSizes[spec.sku].memoryMb,
    persistence: spec.persistence,
    evictionPolicy: spec.evictionPolicy,
    host: status?.host ?? null,
    port: status?.port ?? null,
    tls: true,
    createdAt: record.createdAt.toISOString()
  }
}
