/** The shared suite on the store: the books that spending goes by are the outside of a budget. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as budget from "#reconcilers/budget.ts"
import type { BudgetSpec } from "#schemas/budget.ts"
import { Budgets } from "#src/budgets/Budgets.ts"
import { Registry } from "#src/engine/Reconciler.ts"
import { Db } from "#src/store/Db.ts"
import { changed, run, type StoreWorld, singleton, storeWorld } from "./on-store.ts"
import { reconcilerSuite } from "./suite.ts"

const spec: BudgetSpec = { monthlyCapUsd: 12.5, alertThresholdPercent: 80, hardStop: true }

reconcilerSuite<StoreWorld, BudgetSpec, unknown>({
  name: "budget",
  kind: "Budget",
  world: storeWorld,
  layer: ({ db }) =>
    budget.layer.pipe(
      Layer.provide(Budgets.layer),
      Layer.provide(Layer.succeed(Db, db)),
      Layer.provideMerge(Registry.layer)
    ),
  makeResource: singleton("Budget", "budget", spec),
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
