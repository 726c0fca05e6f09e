/** The shared suite on the store: a queue's outside is its own tables. */

import { assert, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as queue from "#reconcilers/queue.ts"
import { QueueSpec } from "#schemas/queue.ts"
import { Registry, type Resource } from "#src/engine/Reconciler.ts"
import { QueueTables } from "#src/queues/QueueTables.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { reconcilerSuite } from "./suite.ts"

const spec = Schema.decodeUnknownSync(QueueSpec)({
  deadLetterQueue: "dead",
  consumer: { path: "/jobs", maxConcurrency: 4 }
})

const world = Effect.gen(function* () {
  const context = yield* Layer.build(
    Resources.layer.pipe(Layer.provideMerge(KeyRing.layerEphemeral), Layer.provideMerge(testDb()))
  )
  return yield* Effect.gen(function* () {
    const { id: orgId } = yield* makeOrganization()
    const { projectId, production } = yield* makeProject(orgId, "shop")
    const resources = yield* Resources
    const make = (name: string) => ({
      action: "create" as const,
      uid: uuid(),
      kind: "Queue",
      projectId,
      environment: "production",
      name,
      parentUid: production,
      spec: {},
      managedBy: "api" as const
    })
    yield* resources.write(orgId, [make("dead"), make("other")], actor)
    const add = (name: string) => Effect.orDie(resources.write(orgId, [make(name)], actor))
    return { db: Context.get(context, Db), orgId, projectId, production, add }
  }).pipe(Effect.provide(context))
})
type World = Effect.Success<typeof world>

const run =
  (statement: string) =>
  (world: World, { uid }: Resource<QueueSpec>) =>
    Effect.asVoid(world.db.engine.unsafe(statement.replace("$uid", `'${uid}'`)))
const set = (what: string) => run(`update queue set ${what} where uid = $uid`)
const changed = (values: Partial<QueueSpec>) => (_: World, resource: Resource<QueueSpec>) =>
  Effect.succeed({ ...resource, generation: resource.generation + 1, spec: { ...resource.spec, ...values } })

const layer = ({ db }: World) =>
  queue.layer.pipe(
    Layer.provide(QueueTables.layer),
    Layer.provide(Layer.succeed(Db, db)),
    Layer.provideMerge(Registry.layer)
  )
const makeResource = (world: World): Resource<QueueSpec> => ({
  orgId: world.orgId,
  uid: uuid(),
  kind: "Queue",
  projectId: world.projectId,
  environment: "production",
  name: "jobs",
  parentUid: world.production,
  spec,
  generation: 1,
  status: null,
  facts: {},
  deleting: false,
  fence: 1n
})

reconcilerSuite<World, QueueSpec, unknown>({
  name: "a queue",
  kind: "Queue",
  world,
  layer,
  makeResource: (world) => Effect.succeed(makeResource(world)),
  snapshot: ({ db }, { uid }) =>
    Effect.map(
      db.engine`
        select paused, retention_seconds, dead_letter_uid, path, max_batch_size, max_batch_wait_seconds, max_retries,
          retry_delay_seconds, (select count(*)::int from queue_slot where queue_uid = ${uid}::uuid) as slots
        from queue where uid = ${uid}::uuid`,
      (rows) => rows
    ),
  remains: ({ db }, { uid }) =>
    Effect.map(
      db.engine<{ readonly what: string }>`
        select 'queue' as what from queue where uid = ${uid}::uuid
        union all select 'slot' from queue_slot where queue_uid = ${uid}::uuid
        union all select 'message' from queue_message where queue_uid = ${uid}::uuid
        union all select 'key' from queue_key where queue_uid = ${uid}::uuid`,
      (rows) => rows.map(({ what }) => what)
    ),
  changes: [
    { name: "another dead letter queue", apply: changed({ deadLetterQueue: "other" }) },
    { name: "a pause", apply: changed({ paused: true }) },
    {
      name: "fewer batches at once",
      apply: changed({ consumer: { ...spec.consumer!, maxConcurrency: 2, maxBatchSize: 50 } })
    }
  ],
  drifts: [
    { name: "it is paused by hand", field: "/paused", disturb: set("paused = true") },
    { name: "another retention", field: "/retentionSeconds", disturb: set("retention_seconds = 60") },
    { name: "no dead letter queue", field: "/deadLetterQueue", disturb: set("dead_letter_uid = null") },
    { name: "another path", field: "/consumer/path", disturb: set("path = '/evil'") },
    { name: "another size", field: "/consumer/maxBatchSize", disturb: set("max_batch_size = 1") },
    {
      name: "another wait",
      field: "/consumer/maxBatchWaitSeconds",
      disturb: set("max_batch_wait_seconds = 9")
    },
    { name: "more tries", field: "/consumer/maxRetries", disturb: set("max_retries = 99") },
    { name: "another delay", field: "/consumer/retryDelaySeconds", disturb: set("retry_delay_seconds = 9") },
    {
      name: "a slot is gone",
      field: "/consumer/maxConcurrency",
      disturb: run("delete from queue_slot where queue_uid = $uid and slot = 1")
    },
    {
      name: "everything is gone",
      field: "absent",
      disturb: run("delete from queue where uid = $uid")
    }
  ],
  settleMs: 60_000
})

it.live("a queue without its dead letter queue takes messages and waits for that by name", () =>
  Effect.gen(function* () {
    const made = yield* world
    const resource = { ...makeResource(made), spec: { ...spec, deadLetterQueue: "later" } }
    yield* Effect.gen(function* () {
      const { reconciler } = (yield* Registry).registrations.get("Queue") ?? assert.fail("not registered")
      yield* reconciler.converge(resource, yield* reconciler.observe(resource))
      const [settings] = yield* made.db.engine`select path from queue where uid = ${resource.uid}::uuid`
      assert.deepStrictEqual(settings, { path: "/jobs" })
      const waiting = yield* Effect.flip(reconciler.observe(resource))
      const on = { kind: "Queue", projectId: made.projectId, environment: "production", name: "later" }
      assert.deepInclude(waiting, { _tag: "Waiting", reason: "NoDeadLetterQueue", on })
      yield* made.add("later")
      const found = yield* reconciler.observe(resource)
      assert.deepInclude(found, {
        _tag: "Present",
        differences: [{ field: "/deadLetterQueue", message: "another value is in force" }]
      })
      yield* reconciler.converge(resource, found)
      assert.deepInclude(yield* reconciler.observe(resource), { _tag: "Present", ready: true })
    }).pipe(Effect.provide(layer(made)))
  }).pipe(Effect.scoped)
)
