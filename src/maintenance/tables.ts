import type { TableRule } from "#src/store/table-rules.ts"

export const tables: ReadonlyArray<TableRule> = [
  { name: "maintenance_schedule", onOrganizationDeletion: "cascade" },
  {
    name: "maintenance_run",
    onOrganizationDeletion: "cascade",
    retention: { column: "finished_at", age: "90 days" }
  },
  {
    name: "maintenance_finding",
    onOrganizationDeletion: "cascade",
    retention: { column: "resolved_at", age: "90 days" }
  },
  {
    name: "maintenance_action",
    onOrganizationDeletion: "cascade",
    retention: { column: "finished_at", age: "90 days" }
  }
]
