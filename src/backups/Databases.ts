/** The databases that are backed up, as the store wants them. */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { BackupPolicy } from "#schemas/backup-policy.ts"
import { DatabaseSpec } from "#schemas/database.ts"
import { ServedRegion } from "#src/engine/options.ts"
import { Db, repeatable, type Sql } from "#src/store/Db.ts"

export interface ManagedDatabase {
  readonly orgId: string
  readonly uid: string
  readonly lineage: string
  readonly policy: BackupPolicy
  readonly destinationIds: ReadonlyArray<string>
  /** Whether its server was seen ready. */
  readonly ready: boolean
}

const decode = Schema.decodeUnknownOption(DatabaseSpec)

/** Those of this process's region: their data folders are on its machine. What is being deleted is not backed up any more. */
export const managedDatabases = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const region = yield* ServedRegion
  const rows = yield* repeatable(sql<{
    readonly orgId: string
    readonly uid: string
    readonly spec: unknown
    readonly ready: boolean
  }>`
    select org_id as "orgId", uid, spec, phase = 'ready' as ready from resource
    where kind = 'Database' and spec ->> 'region' = ${region}::text
      and deleted_at is null and deletion_requested_at is null`)
  return rows.flatMap(({ orgId, uid, spec, ready }): ReadonlyArray<ManagedDatabase> => {
    const decoded = decode(spec)
    if (decoded._tag === "None") return []
    const { backup, lineage } = decoded.value
    return [
      { orgId, uid, lineage: lineage ?? uid, policy: backup, destinationIds: backup.destinationIds, ready }
    ]
  })
})

/**
 * Whether the row `alias`, of a table with the columns `org_id` and `database_uid`, belongs to a database of another region:
 * what is to be done is done on a machine there. Of a database that the store has forgotten any process does it.
 */
export const isElsewhere = (sql: Sql, alias: string, region: string) => {
  const row = sql.literal(alias)
  return sql`exists (select from resource r where r.org_id = ${row}.org_id and r.uid = ${row}.database_uid
    and r.spec ->> 'region' <> ${region}::text)`
}
/** The same, of a table with the columns `org_id` and `lineage`. */
export const isHistoryElsewhere = (sql: Sql, alias: string, region: string) => {
  const row = sql.literal(alias)
  return sql`exists (select from backup_lineage l where l.org_id = ${row}.org_id and l.lineage = ${row}.lineage
    and ${isElsewhere(sql, "l", region)})`
}
