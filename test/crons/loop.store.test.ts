import * as Effect from "effect/Effect"
import type { Claimed, Result } from "#src/crons/DueRuns.ts"
import { channel } from "#src/crons/run.ts"
import { runsLoop } from "#src/crons/runner.ts"
import { Db } from "#src/store/Db.ts"
import { rowsOf } from "#test/loops/rows.ts"
import { leasedLoopSuite } from "#test/loops/suite.ts"
import type { Table } from "#test/loops/table.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { makeApp, makeJob, world } from "./world.ts"

leasedLoopSuite(
  "of cron runs",
  world,
  Effect.gen(function* () {
    const db = yield* Db
    const { engine: sql, notifications } = db
    const loop = yield* runsLoop
    type Needs =
      | Db
      | Effect.Services<ReturnType<typeof loop.run>>
      | Effect.Services<ReturnType<typeof makeJob>>
    const context = yield* Effect.context<Needs>()
    /** Of each organization. */
    const jobs = new Map<string, string>()
    const table: Table<Claimed, Result> = {
      ...rowsOf(db, { table: "cron_run", done: sql`status = 'succeeded'` }),
      port: {
        ...loop,
        run: (claimed) => Effect.provideContext(loop.run(claimed), context),
        // The layer listens for it.
        wake: notifications(channel)
      },
      makeOrganization: Effect.gen(function* () {
        const app = yield* makeApp(undefined)
        const job = yield* makeJob(app, { concurrencyPolicy: "allow", retry: { maxAttempts: 10 } })
        jobs.set(app.orgId, job.uid)
        return app.orgId
      }).pipe(Effect.provideContext(context), Effect.orDie),
      add: (orgId, dueIn = 0) => {
        const id = uuid()
        return sql`
          with added as (
            insert into cron_run (org_id, id, cron_uid, trigger, scheduled_at, due_at)
            values (${orgId}::uuid, ${id}::uuid, ${jobs.get(orgId) ?? ""}::uuid, 'manual', now(),
              now() + ${dueIn}::float8 * interval '1 millisecond')
          )
          select pg_notify(${channel}, '')`.pipe(Effect.as(id), Effect.orDie)
      },
      succeeded: (claimed) => ({ claimed, attempts: [], status: "succeeded", reason: null, delay: 0 })
    }
    return table
  })
)
