/** The shared suite on the store: what the runners follow is the outside of a cron job. */
import { assert, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as cron from "#reconcilers/cron.ts"
import { CronSpec } from "#schemas/cron.ts"
import { Crons } from "#src/crons/Crons.ts"
import { Registry, type Resource } from "#src/engine/Reconciler.ts"
import { QueueTables } from "#src/queues/QueueTables.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { changed, run } from "./on-store.ts"
import { reconcilerSuite } from "./suite.ts"

/** Half a year from now: no time passes during a test. */
const rarely = (day: number) => `0 0 ${day} ${((new Date().getUTCMonth() + 6) % 12) + 1} *`

const spec = Schema.decodeUnknownSync(CronSpec)({
  schedule: rarely(1),
  target: { kind: "http", path: "/jobs" }
})

interface Place {
  readonly resources: Resources["Service"]
  readonly orgId: string
  readonly projectId: string
  readonly environmentUid: string
}
/** Puts a queue into the environment. */
const addQueue = ({ resources, orgId, projectId, environmentUid }: Place, name: string) =>
  resources.write(
    orgId,
    [
      {
        action: "create",
        uid: uuid(),
        kind: "Queue",
        projectId,
        environment: "production",
        name,
        parentUid: environmentUid,
        spec: {},
        managedBy: "api"
      }
    ],
    actor
  )

const world = Effect.gen(function* () {
  const context = yield* Layer.build(
    Resources.layer.pipe(Layer.provideMerge(KeyRing.layerEphemeral), Layer.provideMerge(testDb()))
  )
  return yield* Effect.gen(function* () {
    const { id: orgId } = yield* makeOrganization()
    const { projectId, production } = yield* makeProject(orgId, "shop")
    const made = {
      db: Context.get(context, Db),
      resources: Context.get(context, Resources),
      orgId,
      projectId,
      environmentUid: production
    }
    yield* addQueue(made, "jobs")
    return made
  }).pipe(Effect.provide(context))
})
type World = Effect.Success<typeof world>

const layer = ({ db }: World) =>
  cron.layer.pipe(
    Layer.provide([Crons.layer, QueueTables.layer]),
    Layer.provide(Layer.succeed(Db, db)),
    Layer.provideMerge(Registry.layer)
  )

const makeResource = (world: World): Resource<CronSpec> => ({
  orgId: world.orgId,
  uid: uuid(),
  kind: "Cron",
  projectId: world.projectId,
  environment: "production",
  name: "nightly",
  parentUid: world.environmentUid,
  spec,
  generation: 1,
  status: null,
  facts: {},
  deleting: false,
  fence: 1n
})

const set = (what: string) => run(`update cron_schedule set ${what} where uid = $uid`)

reconcilerSuite<World, CronSpec, unknown>({
  name: "a cron job",
  kind: "Cron",
  world,
  layer,
  makeResource: (world) => Effect.succeed(makeResource(world)),
  snapshot: ({ db }, { uid }) =>
    Effect.map(
      db.engine`select name, environment_uid, config, next_at from cron_schedule where uid = ${uid}::uuid`,
      (rows) => rows
    ),
  remains: ({ db }, { uid }) =>
    Effect.map(
      db.engine<{ readonly what: string }>`
        select 'schedule' as what from cron_schedule where uid = ${uid}::uuid
        union all select 'run' from cron_run where cron_uid = ${uid}::uuid`,
      (rows) => rows.map(({ what }) => what)
    ),
  changes: [
    { name: "another schedule", apply: changed({ schedule: rarely(2) }) },
    { name: "another time zone", apply: changed({ timezone: "Asia/Tokyo" }) },
    { name: "switched off", apply: changed({ enabled: false }) },
    { name: "another target", apply: changed({ target: { kind: "queue", queue: "jobs" } }) },
    {
      name: "with a run that waits for its time",
      apply: (world, resource) =>
        Effect.andThen(
          run(`insert into cron_run (org_id, id, cron_uid, trigger, scheduled_at, due_at)
            select org_id, gen_random_uuid(), uid, 'schedule', next_at, next_at from cron_schedule where uid = $uid`)(
            world,
            resource
          ),
          changed({ schedule: rarely(3) })(world, resource)
        )
    }
  ],
  drifts: [
    {
      name: "another schedule",
      field: "/schedule",
      disturb: set(`config = jsonb_set(config, '{schedule}', '"* * * * *"')`)
    },
    { name: "another name", field: "/schedule", disturb: set("name = 'other'") },
    {
      name: "everything is gone",
      field: "absent",
      disturb: run("delete from cron_schedule where uid = $uid")
    }
  ],
  settleMs: 60_000
})

it.live("a cron job whose queue is missing waits for it by name, and is ready once the queue is there", () =>
  Effect.gen(function* () {
    const made = yield* world
    const resource = { ...makeResource(made), spec: { ...spec, target: { kind: "queue", queue: "later" } } }
    yield* Effect.gen(function* () {
      const { reconciler } = (yield* Registry).registrations.get("Cron") ?? assert.fail("not registered")
      yield* reconciler.converge(resource, yield* reconciler.observe(resource))
      const waiting = yield* Effect.flip(reconciler.observe(resource))
      assert.deepInclude(waiting, {
        _tag: "Waiting",
        reason: "NoQueue",
        on: {
          kind: "Queue",
          projectId: resource.projectId,
          environment: resource.environment,
          name: "later"
        },
        message: 'Waits for the queue "later", which is not in this environment'
      })
      // A job that goes needs no queue.
      const going = yield* reconciler.observe({ ...resource, deleting: true })
      assert.strictEqual(going._tag, "Present")
      yield* addQueue(made, "later")
      const seen = yield* reconciler.observe(resource)
      assert.deepInclude(seen, { _tag: "Present", ready: true, differences: [] })
    }).pipe(Effect.provide(layer(made)))
  }).pipe(Effect.scoped)
)
