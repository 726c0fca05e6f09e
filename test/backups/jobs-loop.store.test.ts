import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { type ClaimedJob, Jobs } from "#src/backups/Jobs.ts"
import { jobsLoop, type Outcome } from "#src/backups/jobs-loop.ts"
import { channel } from "#src/backups/Ledger.ts"
import { Db } from "#src/store/Db.ts"
import { rowsOf } from "#test/loops/rows.ts"
import { wholeLeasedLoopSuite } from "#test/loops/suite.ts"
import type { Table } from "#test/loops/table.ts"
import { testDb } from "#test/setup/database.ts"
import { uuid } from "#test/setup/fixtures.ts"

/** The suite runs jobs of its own. */
const unused = () => Effect.die(new Error("no job is really run"))

wholeLeasedLoopSuite(
  "of backups and drills",
  Jobs.layer.pipe(Layer.provideMerge(testDb())),
  Effect.gen(function* () {
    const db = yield* Db
    const sql = db.engine
    const loop = yield* jobsLoop({
      base: { run: unused, clear: unused },
      drill: { run: unused, tidy: Effect.void },
      afterSuccess: Effect.void
    })
    const table: Table<ClaimedJob, Outcome> = {
      ...rowsOf(db, { table: "backup_job", done: sql`status = 'succeeded'` }),
      // The layer listens for it.
      port: { ...loop, wake: db.notifications(channel) },
      add: (orgId, dueIn = 0) => {
        const id = uuid()
        return sql`
          with made as (
            insert into backup_job (org_id, id, kind, database_uid, lineage, reason, due_at)
            values (${orgId}::uuid, ${id}::uuid, 'drill', ${uuid()}::uuid, ${uuid()}::uuid, 'request',
              now() + ${dueIn}::float8 * interval '1 millisecond')
          )
          select pg_notify(${channel}, '')`.pipe(Effect.as(id), Effect.orDie)
      },
      succeeded: () => ({ _tag: "Succeeded", result: undefined })
    }
    return table
  })
)
