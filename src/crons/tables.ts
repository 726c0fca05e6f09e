import type { TableRule } from "#src/store/table-rules.ts"

export const tables: ReadonlyArray<TableRule> = [
  { name: "cron_schedule", onOrganizationDeletion: { action: "drain" } },
  {
    name: "cron_run",
    onOrganizationDeletion: { action: "drain" },
    retention: { column: "finished_at", age: "90 days" }
  }
]
