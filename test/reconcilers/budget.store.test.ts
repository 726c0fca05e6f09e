/** The shared suite on the store: the books that spending goes by are the outside of a budget. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as budget from "#reconcilers/budget.ts"
import type { BudgetSpec } from "#schemas/budget.ts"
import { Budgets } from "#src/budgets/Budgets.ts"
import { Registry, type Resource } from "#src/engine/Reconciler.ts"
import { Db } from "#src/store/Db.ts"
import { testDb } from "#test/setup/database.ts"
import { makeOrganization, uuid } from "#test/setup/fixtures.ts"
import { reconcilerSuite } from "./suite.ts"

const spec: BudgetSpec = { monthlyCapUsd: 12.5, alertThresholdPercent: 80, hardStop: true }

const world = Effect.gen(function* () {
  const context = yield* Layer.build(testDb())
  const { id: orgId } = yield* Effect.provide(makeOrganization(), context)
  return { db: Context.get(context, Db), orgId }
})
type World = Effect.Success<typeof world>

const makeResource = Effect.fnUntraced(function* ({ db, orgId }: World) {
  const projectId = uuid()
  const resource: Resource<BudgetSpec> = {
    ...{ orgId, uid: uuid(), kind: "Budget", projectId, environment: null, name: "budget" },
    ...{ parentUid: projectId, spec, generation: 1, status: null, facts: {}, deleting: false, fence: 1n }
  }
  yield* Effect.orDie(db.engine`insert into resource (org_id, uid, kind, name, spec, managed_by)
    values (${orgId}::uuid, ${projectId}::uuid, 'Project', ${projectId}, '{}', 'api')`)
  return resource
})

const run =
  (statement: string) =>
  ({ db }: World, { projectId }: Resource<BudgetSpec>) =>
    Effect.asVoid(db.engine.unsafe(statement.replaceAll("$project", `'${projectId}'`)))
const changed = (values: Partial<BudgetSpec>) => (_: World, resource: Resource<BudgetSpec>) =>
  Effect.succeed({ ...resource, generation: resource.generation + 1, spec: { ...resource.spec, ...values } })

reconcilerSuite<World, BudgetSpec, unknown>({
  name: "budget",
  kind: "Budget",
  world,
  layer: ({ db }) =>
    budget.layer.pipe(
      Layer.provide(Budgets.layer),
      Layer.provide(Layer.succeed(Db, db)),
      Layer.provideMerge(Registry.layer)
    ),
  makeResource,
  snapshot: ({ db }, { projectId }) =>
    db.engine`select monthly_cap::int as cap, alert_percent, hard_stop, generation from project_budget
      where project_uid = ${projectId}::uuid`,
  remains: ({ db }, { projectId }) =>
    Effect.map(db.engine`select 1 from project_budget where project_uid = ${projectId}::uuid`, (rows) =>
      rows.map(() => "budget")
    ),
  changes: [
    { name: "another cap", apply: changed({ monthlyCapUsd: 3 }) },
    { name: "none", apply: changed({ monthlyCapUsd: null, alertThresholdPercent: null, hardStop: false }) }
  ],
  drifts: [
    {
      name: "another cap",
      field: "/monthlyCapUsd",
      disturb: run("update project_budget set monthly_cap = 1 where project_uid = $project")
    },
    {
      name: "the budget is gone",
      field: "absent",
      disturb: run("delete from project_budget where project_uid = $project")
    }
  ],
  settleMs: 60_000
})
