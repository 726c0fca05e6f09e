import type { TableRule } from "#src/store/table-rules.ts"

export const tables: ReadonlyArray<TableRule> = [
  { name: "app_log", onOrganizationDeletion: { action: "drain" } },
  {
    name: "app_instance",
    onOrganizationDeletion: { action: "drain" },
    // With what it printed.
    retention: { column: "ended_at", age: "7 days", onlyIf: "t.removed" }
  },
  { name: "app", onOrganizationDeletion: { action: "drain" } }
]
