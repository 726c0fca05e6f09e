import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { type ClaimedJob, Jobs } from "#src/backups/Jobs.ts"
import { jobsLoop, type Outcome } from "#src/backups/jobs-loop.ts"
import { channel } from "#src/backups/Ledger.ts"
import { Db, notifications } from "#src/store/Db.ts"
import { leasedLoopSuite } from "#test/loops/suite.ts"
import type { Table } from "#test/loops/table.ts"
import { testDb } from "#test/setup/database.ts"
import { makeOrganization, uuid } from "#test/setup/fixtures.ts"

/** The suite runs jobs of its own. */
const unused = () => Effect.die(new Error("no job is really run"))

leasedLoopSuite(
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
      // The layer listens for it.
      port: { ...loop, wake: notifications(sql, channel) },
      makeOrganization: makeOrganization().pipe(
        Effect.map(({ id }) => id),
        Effect.provideService(Db, db)
      ),
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
      stored: (id) =>
        sql<{ readonly leased: boolean; readonly done: boolean; readonly dueIn: number | null }>`
          select lease_token is not null as leased, status = 'succeeded' as done,
            (extract(epoch from due_at - clock_timestamp()) * 1000)::float8 as "dueIn"
          from backup_job where id = ${id}::uuid`.pipe(
          Effect.map(([row]) => ({ ...row!, dueIn: row?.dueIn ?? 0 })),
          Effect.orDie
        ),
      advance: (ms) =>
        Effect.asVoid(
          Effect.orDie(sql`update backup_job set due_at = due_at - ${ms}::float8 * interval '1 millisecond'`)
        ),
      clear: Effect.asVoid(Effect.orDie(sql`delete from backup_job`)),
      succeeded: () => ({ _tag: "Succeeded", result: undefined })
    }
    return table
  })
)
