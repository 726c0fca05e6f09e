import type { TableRule } from "#src/store/table-rules.ts"

export const tables: ReadonlyArray<TableRule> = [
  { name: "project_budget", onOrganizationDeletion: "cascade" },
  { name: "budget_month", onOrganizationDeletion: "cascade" },
  // What is old is removed together with what it reserved: see `tidy.ts`.
  { name: "budget_entry", onOrganizationDeletion: "cascade" },
  { name: "metering_organization", onOrganizationDeletion: "cascade" },
  {
    name: "budget_usage",
    onOrganizationDeletion: "cascade",
    retention: { column: "day", age: "400 days" }
  }
]
