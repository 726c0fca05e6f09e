import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import { type CopyResult, makeCopies } from "#src/backups/destinations/copies.ts"
import type { ClaimedCopy } from "#src/backups/destinations/copy-rows.ts"
import { copyId } from "#src/backups/destinations/copy-rows.ts"
import { Remotes } from "#src/backups/destinations/Remotes.ts"
import { channel } from "#src/backups/Ledger.ts"
import type { Place } from "#src/backups/repository/Place.ts"
import { Repository } from "#src/backups/repository/Repository.ts"
import { Db, notifications } from "#src/store/Db.ts"
import { leasedLoopSuite } from "#test/loops/suite.ts"
import type { Table } from "#test/loops/table.ts"
import { testDb } from "#test/setup/database.ts"
import { makeOrganization, uuid } from "#test/setup/fixtures.ts"

/** The suite runs jobs of its own. */
const unused = Effect.die(new Error("no copy is really made"))
const place: Place = {
  id: "unused",
  put: () => unused,
  get: () => Stream.fromEffect(unused),
  list: () => Stream.fromEffect(unused),
  remove: () => unused
}

leasedLoopSuite(
  "of copies",
  Layer.mergeAll(
    Layer.mock(Repository, { local: place }),
    Layer.succeed(Remotes, { current: () => unused, at: () => unused })
  ).pipe(Layer.provideMerge(testDb())),
  Effect.gen(function* () {
    const db = yield* Db
    const sql = db.engine
    const { loop } = yield* makeCopies
    /** Of each organization. */
    const destinations = new Map<string, string>()
    const table: Table<ClaimedCopy, CopyResult> = {
      // The layer listens for it.
      port: { ...loop, wake: notifications(sql, channel) },
      makeOrganization: makeOrganization().pipe(
        Effect.map(({ id }) => {
          destinations.set(id, uuid())
          return id
        }),
        Effect.provideService(Db, db)
      ),
      add: (orgId, dueIn = 0) => {
        const copy = {
          orgId,
          lineage: uuid(),
          name: `wal/${uuid()}`,
          destinationId: destinations.get(orgId)!
        }
        return sql`
          with made as (
            insert into backup_copy (org_id, lineage, name, key, destination_id, due_at)
            values (${orgId}::uuid, ${copy.lineage}::uuid, ${copy.name}, ${copy.name}, ${copy.destinationId}::uuid,
              now() + ${dueIn}::float8 * interval '1 millisecond')
          )
          select pg_notify(${channel}, '')`.pipe(Effect.as(copyId(copy)), Effect.orDie)
      },
      stored: (id) =>
        sql<{ readonly leased: boolean; readonly done: boolean; readonly dueIn: number | null }>`
          select lease is not null as leased, stored_at is not null and due_at is null as done,
            (extract(epoch from due_at - clock_timestamp()) * 1000)::float8 as "dueIn"
          from backup_copy where org_id || '/' || lineage || '/' || name || '/' || destination_id = ${id}`.pipe(
          Effect.map(([row]) => ({ ...row!, dueIn: row?.dueIn ?? 0 })),
          Effect.orDie
        ),
      advance: (ms) =>
        Effect.asVoid(
          Effect.orDie(sql`update backup_copy set due_at = due_at - ${ms}::float8 * interval '1 millisecond'`)
        ),
      clear: Effect.asVoid(Effect.orDie(sql`delete from backup_copy`)),
      succeeded: () => ({ _tag: "Stored", place, version: 1 })
    }
    return table
  })
)
