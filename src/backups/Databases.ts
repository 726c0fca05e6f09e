/** The databases that are backed up, as the store wants them. */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { BackupPolicy } from "#schemas/backup-policy.ts"
import { DatabaseSpec } from "#schemas/database.ts"
import { Db, repeatable } from "#src/store/Db.ts"

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

/** What is being deleted is not backed up any more. */
export const managedDatabases = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const rows = yield* repeatable(sql<{
    readonly orgId: string
    readonly uid: string
    readonly spec: unknown
    readonly ready: boolean
  }>`
    select org_id as "orgId", uid, spec, phase = 'ready' as ready from resource
    where kind = 'Database' and deleted_at is null and deletion_requested_at is null`)
  return rows.flatMap(({ orgId, uid, spec, ready }): ReadonlyArray<ManagedDatabase> => {
    const decoded = decode(spec)
    if (decoded._tag === "None") return []
    const { backup, lineage } = decoded.value
    return [
      { orgId, uid, lineage: lineage ?? uid, policy: backup, destinationIds: backup.destinationIds, ready }
    ]
  })
})
