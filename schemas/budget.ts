/** `Budget`: what a project may spend in a month. One per project. */
import * as Schema from "effect/Schema"
import { inputOf, withDefault } from "./input.ts"
import { defineKind } from "./kind.ts"
import { singletonSection } from "./manifest-mapping.ts"

/** The one name that the resource has in its project. */
export const budgetName = "budget"

const MonthlyCap = Schema.Finite.check(
  Schema.isBetween({ minimum: 0, maximum: 1_000_000_000 }),
  Schema.makeFilter((usd: number) =>
    Number(usd.toFixed(6)) === usd ? undefined : "has more than six digits after the point"
  )
)

export const BudgetSpec = Schema.Struct({
  monthlyCapUsd: Schema.NullOr(MonthlyCap).annotateKey({
    description: "US dollars that may be spent in a month (UTC); null: any number"
  }),
  alertThresholdPercent: withDefault(
    Schema.NullOr(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 100 }))),
    80,
    "Part of the cap at which `budget.alert` is sent; null: never"
  ),
  hardStop: withDefault(
    Schema.Boolean,
    false,
    "Refuse what could cost more than is left; otherwise it is counted only"
  )
}).annotate({ identifier: "BudgetSpec" })
export type BudgetSpec = typeof BudgetSpec.Type
export const BudgetInput = inputOf(BudgetSpec)

/** There is nothing to report: what is spent is in the books. */
export const BudgetStatus = Schema.Struct({}).annotate({ identifier: "BudgetStatus" })
export type BudgetStatus = typeof BudgetStatus.Type

export const Budget = defineKind({
  name: "Budget",
  summary: "What a project may spend in a calendar month (UTC), and what happens when that is spent.",
  scope: "project",
  spec: BudgetSpec,
  status: BudgetStatus,
  fields: Object.keys(BudgetSpec.fields),
  immutable: [],
  internal: [],
  generated: [],
  references: [],
  singleton: true,
  deleteRole: "admin",
  reasons: {},
  manifest: singletonSection(
    "budget",
    budgetName,
    "What the project may spend in a month",
    BudgetInput.fields
  ),
  deadlineSeconds: 60
})
