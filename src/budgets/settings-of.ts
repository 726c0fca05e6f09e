import type { BudgetSpec } from "#schemas/budget.ts"
import type { BudgetSettings } from "./Budgets.ts"
import { microUsdOf } from "./money.ts"

/** What a resource says, as the books keep it. */
export const settingsOf = ({
  monthlyCapUsd,
  alertThresholdPercent,
  hardStop
}: BudgetSpec): BudgetSettings => ({
  monthlyCap: monthlyCapUsd === null ? null : microUsdOf(monthlyCapUsd),
  alertPercent: alertThresholdPercent,
  hardStop
})
