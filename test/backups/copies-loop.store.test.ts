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
import { Db } from "#src/store/Db.ts"
import { rowsOf } from "#test/loops/rows.ts"
import { leasedLoopSuite } from "#test/loops/suite.ts"
import type { Table } from "#test/loops/table.ts"
import { testDb } from "#test/setup/database.ts"
import { uuid } from "#test/setup/fixtures.ts"

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
    const rows = rowsOf(db, {
      table: "backup_copy",
      lease: "lease",
      done: sql`stored_at is not null and due_at is null`,
      is: (id) => sql`org_id || '/' || lineage || '/' || name || '/' || destination_id = ${id}`
    })
    const table: Table<ClaimedCopy, CopyResult> = {
      ...rows,
      // The layer listens for it.
      port: { ...loop, wake: db.notifications(channel) },
      makeOrganization: Effect.tap(rows.makeOrganization, (id) =>
        Effect.sync(() => destinations.set(id, uuid()))
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
      succeeded: () => ({ _tag: "Stored", place, version: 1 })
    }
    return table
  })
)
