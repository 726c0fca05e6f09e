/** Whether the logs of databases reach their backups, for measurements. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface ArchiveState {
  readonly orgId: string
  /** The database. */
  readonly uid: string
  /** Something keeps its log from being archived, or its copies from a destination. */
  readonly failed: boolean
  /** How long ago the moment was up to which its backups reach. Null: they reach nowhere yet. */
  readonly lagSeconds: number | null
}

export class ArchiveStates extends Context.Service<
  ArchiveStates,
  { readonly all: Effect.Effect<ReadonlyArray<ArchiveState>, StoreUnavailable> }
>()("svc/backups/ArchiveStates") {
  static readonly layer = Layer.effect(
    ArchiveStates,
    Effect.map(Db, ({ engine: sql }) =>
      ArchiveStates.of({
        // Of each database, the history that it began last. Indexes: backup_lineage_database, backup_object_flushed.
        all: repeatable(sql<ArchiveState>`
          select l.org_id as "orgId", l.database_uid as uid, l.trouble is not null as failed,
            case when o.flushed_at is not null then greatest(0, extract(epoch from now() - o.flushed_at))::float8 end
              as "lagSeconds"
          from (select distinct on (database_uid) org_id, database_uid, lineage, trouble
            from backup_lineage order by database_uid, made_at desc) l
          left join lateral (
            select b.flushed_at from backup_object b
            where b.org_id = l.org_id and b.lineage = l.lineage and b.flushed_at is not null
            order by b.name desc limit 1) o on true`).pipe(Effect.withSpan("ArchiveStates.all"))
      })
    )
  )
}
