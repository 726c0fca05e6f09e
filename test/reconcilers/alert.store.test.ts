/** The shared suite on the store: the rule that the evaluation goes by is the outside of an alert. */
import { assert, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as alert from "#reconcilers/alert.ts"
import { AlertSpec } from "#schemas/alert.ts"
import { AlertRules } from "#src/alerts/AlertRules.ts"
import { Registry, type Resource } from "#src/engine/Reconciler.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { changed, run } from "./on-store.ts"
import { reconcilerSuite } from "./suite.ts"

const spec = Schema.decodeUnknownSync(AlertSpec)({
  severity: "critical",
  scope: { environment: "production" },
  condition: { signal: "storage.capacity" }
})

const world = Effect.gen(function* () {
  const context = yield* Layer.build(
    Resources.layer.pipe(Layer.provideMerge(KeyRing.layerEphemeral), Layer.provideMerge(testDb()))
  )
  return yield* Effect.gen(function* () {
    const { id: orgId } = yield* makeOrganization()
    const { projectId } = yield* makeProject(orgId, "shop")
    return { db: Context.get(context, Db), orgId, projectId }
  }).pipe(Effect.provide(context))
})
type World = Effect.Success<typeof world>

const layer = ({ db }: World) =>
  alert.layer.pipe(
    Layer.provide(AlertRules.layer),
    Layer.provide(Layer.succeed(Db, db)),
    Layer.provideMerge(Registry.layer)
  )
const makeResource = (world: World): Resource<AlertSpec> => ({
  orgId: world.orgId,
  uid: uuid(),
  kind: "Alert",
  projectId: world.projectId,
  environment: null,
  name: "Disk full",
  parentUid: world.projectId,
  spec,
  generation: 1,
  status: null,
  facts: {},
  deleting: false,
  fence: 1n
})

reconcilerSuite<World, AlertSpec, unknown>({
  name: "an alert",
  kind: "Alert",
  world,
  layer,
  makeResource: (world) => Effect.succeed(makeResource(world)),
  snapshot: ({ db }, { uid }) =>
    Effect.map(
      db.engine`select project_id, name, config, threshold from alert where uid = ${uid}::uuid`,
      (rows) => rows
    ),
  remains: ({ db }, { uid }) =>
    Effect.map(
      db.engine<{ readonly what: string }>`
        select 'alert' as what from alert where uid = ${uid}::uuid
        union all select 'history' from alert_history where alert_uid = ${uid}::uuid`,
      (rows) => rows.map(({ what }) => what)
    ),
  changes: [
    { name: "it is switched off", apply: changed({ enabled: false }) },
    {
      name: "another threshold",
      apply: changed({ condition: { ...spec.condition, threshold: 99, operator: "gt" } })
    },
    { name: "another scope", apply: changed({ scope: { ...spec.scope, environment: null } }) }
  ],
  drifts: [
    {
      name: "another threshold is in force",
      field: "/condition",
      disturb: run("update alert set threshold = 1 where uid = $uid")
    },
    {
      name: "another rule is in force",
      field: "/condition",
      disturb: run("update alert set config = jsonb_set(config, '{enabled}', 'false') where uid = $uid")
    },
    { name: "it is gone", field: "absent", disturb: run("delete from alert where uid = $uid") }
  ],
  settleMs: 60_000
})

it.live("an alert says what it should watch and is not there, and who cannot be told", () =>
  Effect.gen(function* () {
    const made = yield* world
    const look = Effect.fnUntraced(function* (values: object) {
      const resource = {
        ...makeResource(made),
        spec: Schema.decodeUnknownSync(AlertSpec)({ ...spec, ...values })
      }
      const { reconciler } = (yield* Registry).registrations.get("Alert") ?? assert.fail("not registered")
      yield* reconciler.converge(resource, yield* reconciler.observe(resource))
      const found = yield* reconciler.observe(resource)
      return found._tag === "Present" ? [found.ready, found.note] : found
    })
    yield* Effect.gen(function* () {
      assert.deepStrictEqual(yield* look({}), [true, undefined])
      assert.deepStrictEqual(yield* look({ scope: { environment: "staging", database: "main" } }), [
        true,
        {
          reason: "ScopeMissing",
          message: "What it should watch is not there: the environment, the database of its scope"
        }
      ])
      assert.deepStrictEqual(
        yield* look({ condition: { signal: "database.query_latency_p99_ms", threshold: 100 } }),
        [
          true,
          {
            reason: "SignalUnavailable",
            message:
              "It never fires, because nothing measures database.query_latency_p99_ms: Postgres keeps sums of the times that statements take, and no distribution of them"
          }
        ]
      )
      assert.deepStrictEqual(yield* look({ channels: [{ kind: "mail", destination: "who@example.com" }] }), [
        true,
        {
          reason: "RecipientUnknown",
          message: "No member of the organization has the address who@example.com; nothing is sent there"
        }
      ])
    }).pipe(Effect.provide(layer(made)))
  }).pipe(Effect.scoped)
)
