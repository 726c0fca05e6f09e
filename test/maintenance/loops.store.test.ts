import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { type ActionResult, Actions, type ClaimedAction } from "#src/maintenance/Actions.ts"
import { actionsLoop } from "#src/maintenance/act.ts"
import { channel } from "#src/maintenance/options.ts"
import { type ClaimedRun, type RunResult, Runs } from "#src/maintenance/Runs.ts"
import { runsLoop } from "#src/maintenance/runner.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { rowsOf } from "#test/loops/rows.ts"
import { leasedLoopSuite } from "#test/loops/suite.ts"
import type { Table } from "#test/loops/table.ts"
import { testDb } from "#test/setup/database.ts"
import { uuid } from "#test/setup/fixtures.ts"

const world = Layer.mergeAll(Runs.layer, Actions.layer, Resources.layer).pipe(
  Layer.provide(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb())
)

/** A CTE's body: the maintenance of a project that nobody has seen before. */
const maintenance = (sql: Db["Service"]["engine"], orgId: string) => sql`
  insert into resource (org_id, uid, kind, project_id, name, spec, managed_by)
  values (${orgId}::uuid, ${uuid()}::uuid, 'Maintenance', ${uuid()}::uuid, 'maintenance', '{}', 'api')
  returning org_id, uid`

leasedLoopSuite(
  "of runs of maintenance",
  world,
  Effect.gen(function* () {
    const db = yield* Db
    const { engine: sql, notifications } = db
    const table: Table<ClaimedRun, RunResult> = {
      ...rowsOf(db, { table: "maintenance_run", done: sql`status = 'succeeded'` }),
      port: {
        ...(yield* runsLoop(() => Effect.die("no run looks at anything here"))),
        wake: notifications(channel)
      },
      add: (orgId, dueIn = 0) => {
        const id = uuid()
        return sql`
          with m as (${maintenance(sql, orgId)}), added as (
            insert into maintenance_run (org_id, id, maintenance_uid, trigger, due_at)
            select org_id, ${id}::uuid, uid, 'manual', now() + ${dueIn}::float8 * interval '1 millisecond' from m
          )
          select pg_notify(${channel}, 'begin')`.pipe(Effect.as(id), Effect.orDie)
      },
      succeeded: () => ({
        ...({ _tag: "Looked", categories: {}, findings: [] } as const),
        ...{ notJudged: { subjects: [], keys: [] }, remediation: null }
      })
    }
    return table
  })
)

leasedLoopSuite(
  "of actions of maintenance",
  world,
  Effect.gen(function* () {
    const db = yield* Db
    const { engine: sql, notifications } = db
    const table: Table<ClaimedAction, ActionResult> = {
      ...rowsOf(db, { table: "maintenance_action", done: sql`status = 'succeeded'` }),
      port: {
        ...(yield* actionsLoop(() => Effect.die("no action calls anything here"))),
        wake: notifications(channel)
      },
      add: (orgId, dueIn = 0) => {
        const id = uuid()
        return sql`
          with m as (${maintenance(sql, orgId)}), added as (
            insert into maintenance_action (org_id, id, maintenance_uid, run_id, finding_id, remedy, due_at)
            select org_id, ${id}::uuid, uid, ${uuid()}::uuid, ${uuid()}::uuid, '{}',
              now() + ${dueIn}::float8 * interval '1 millisecond' from m
          )
          select pg_notify(${channel}, 'begin')`.pipe(Effect.as(id), Effect.orDie)
      },
      succeeded: () => ({ _tag: "Ended", status: "succeeded", answered: 202, reason: null })
    }
    return table
  })
)
