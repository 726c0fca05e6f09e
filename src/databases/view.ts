/** How a database looks to callers. */
import { Database } from "#schemas/database.ts"
import { decodeWith, serviceStatus } from "#src/api/views.ts"
import type { ListedRecord } from "#src/store/records.ts"

const decode = decodeWith(Database)

export const databaseView = (record: ListedRecord) => {
  const { spec, status } = decode(record)
  return {
    id: record.uid,
    status: serviceStatus(record),
    region: spec.region,
    host: status?.host ?? null,
    port: status?.port ?? null,
    dbName: status?.dbName ?? null,
    user: status?.user ?? null,
    replicas: status?.replicas ?? [],
    failover: status?.failover ?? null
  }
}
