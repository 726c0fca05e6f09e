import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { type MaintenanceResult, maintenanceLoop } from "#src/branches/maintenance.ts"
import { branchId, type ClaimedBranch } from "#src/branches/maintenance-rows.ts"
import { Promotions } from "#src/branches/Promotions.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { leasedLoopSuite } from "#test/loops/suite.ts"
import type { Table } from "#test/loops/table.ts"
import { testDb } from "#test/setup/database.ts"
import { makeOrganization, uuid } from "#test/setup/fixtures.ts"

leasedLoopSuite(
  "over branches",
  Layer.mock(Promotions, {}).pipe(
    Layer.provideMerge(Resources.layer),
    Layer.provide(KeyRing.layerEphemeral),
    Layer.provideMerge(testDb())
  ),
  Effect.gen(function* () {
    const db = yield* Db
    const sql = db.engine
    const loop = yield* maintenanceLoop
    const channel = "test_branch_ready"
    const table: Table<ClaimedBranch, MaintenanceResult> = {
      port: {
        ...loop,
        // Branches become ready untold: the program looks every second.
        wake: db.notifications(channel),
        // A run that went well has changed the branch.
        settle: (one, result) =>
          sql`
            update resource r set spec = spec || '{"promoteWhenReady": false}' where uid = ${one.uid}::uuid and exists (
              select from branch_try t where t.uid = r.uid and t.lease = ${one.lease}::bigint)`.pipe(
            Effect.orDie,
            Effect.andThen(loop.settle(one, result))
          )
      },
      makeOrganization: makeOrganization().pipe(
        Effect.map(({ id }) => id),
        Effect.provideService(Db, db)
      ),
      add: (orgId, dueIn = 0) => {
        const uid = uuid()
        return sql`
          with branch as (
            insert into resource (org_id, uid, kind, name, spec, phase, status, managed_by)
            values (${orgId}::uuid, ${uid}::uuid, 'DatabaseBranch', ${uid}, '{"promoteWhenReady": true}', 'ready',
              '{"state": "ready"}', 'api')
          ), tried as (
            insert into branch_try (org_id, uid, tries, due_at, code, message)
            select ${orgId}::uuid, ${uid}::uuid, 1, now() + ${dueIn}::float8 * interval '1 millisecond', 'no', 'no'
            where ${dueIn}::float8 > 0
          )
          select pg_notify(${channel}, '')`.pipe(Effect.as(branchId({ orgId, uid })), Effect.orDie)
      },
      stored: (id) =>
        sql<{ readonly leased: boolean; readonly done: boolean; readonly dueIn: number | null }>`
          select t.lease is not null as leased, t.uid is null and r.spec -> 'promoteWhenReady' = 'false' as done,
            (extract(epoch from t.due_at - clock_timestamp()) * 1000)::float8 as "dueIn"
          from resource r left join branch_try t using (org_id, uid) where r.org_id || '/' || r.uid = ${id}`.pipe(
          Effect.map(([row]) => ({ ...row!, dueIn: row?.dueIn ?? 0 })),
          Effect.orDie
        ),
      advance: (ms) =>
        Effect.asVoid(
          Effect.orDie(sql`update branch_try set due_at = due_at - ${ms}::float8 * interval '1 millisecond'`)
        ),
      clear: Effect.asVoid(
        Effect.orDie(
          sql`with tried as (delete from branch_try) update resource set spec = spec || '{"promoteWhenReady": false}'`
        )
      ),
      succeeded: () => ({ _tag: "Succeeded" })
    }
    return table
  })
)
