/** The shared suite on the store: the schedule that the planner follows is the outside of maintenance. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as maintenance from "#reconcilers/maintenance.ts"
import { MaintenanceSpec } from "#schemas/maintenance.ts"
import { Registry } from "#src/engine/Reconciler.ts"
import { Schedules } from "#src/maintenance/Schedules.ts"
import { Db } from "#src/store/Db.ts"
import { changed, run, type StoreWorld, singleton, storeWorld } from "./on-store.ts"
import { reconcilerSuite } from "./suite.ts"

const spec = Schema.decodeUnknownSync(MaintenanceSpec)({ schedule: "weekly" })

reconcilerSuite<StoreWorld, MaintenanceSpec, unknown>({
  name: "maintenance",
  kind: "Maintenance",
  world: storeWorld,
  layer: ({ db }) =>
    maintenance.layer.pipe(
      Layer.provide(Schedules.layer),
      Layer.provide(Layer.succeed(Db, db)),
      Layer.provideMerge(Registry.layer)
    ),
  makeResource: singleton("Maintenance", "maintenance", spec),
  snapshot: ({ db }, { uid }) =>
    db.engine`select schedule, next_at is not null as planned from maintenance_schedule where uid = ${uid}::uuid`,
  remains: ({ db }, { uid }) =>
    Effect.map(
      db.engine<{ readonly what: string }>`
        select 'schedule' as what from maintenance_schedule where uid = ${uid}::uuid
        union all select 'run' from maintenance_run where maintenance_uid = ${uid}::uuid
        union all select 'finding' from maintenance_finding where maintenance_uid = ${uid}::uuid
        union all select 'action' from maintenance_action where maintenance_uid = ${uid}::uuid`,
      (rows) => rows.map(({ what }) => what)
    ),
  changes: [
    { name: "another schedule", apply: changed({ schedule: "hourly" }) },
    { name: "switched off", apply: changed({ enabled: false }) },
    {
      name: "with a run, a finding and an action",
      apply: (world, resource) =>
        Effect.andThen(
          run(`
            with run as (
              insert into maintenance_run (org_id, id, maintenance_uid, trigger)
              select org_id, gen_random_uuid(), uid, 'manual' from resource where uid = $uid returning *
            ), finding as (
              insert into maintenance_finding (org_id, id, maintenance_uid, key, category, severity, subject, summary, risk,
                evidence, basis)
              select org_id, gen_random_uuid(), uid, 'stuck', 'drift', 'info', '{}', '', '', '{}', ''
              from resource where uid = $uid returning *
            )
            insert into maintenance_action (org_id, id, maintenance_uid, run_id, finding_id, remedy)
            select run.org_id, gen_random_uuid(), run.maintenance_uid, run.id, finding.id, '{}' from run, finding`)(
            world,
            resource
          ),
          changed({ schedule: "daily" })(world, resource)
        )
    }
  ],
  drifts: [
    {
      name: "another schedule",
      field: "/schedule",
      disturb: run("update maintenance_schedule set schedule = 'hourly' where uid = $uid")
    },
    {
      name: "the schedule is gone",
      field: "absent",
      disturb: run("delete from maintenance_schedule where uid = $uid")
    }
  ],
  settleMs: 60_000
})
