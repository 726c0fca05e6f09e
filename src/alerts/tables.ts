import type { TableRule } from "#src/store/table-rules.ts"

export const tables: ReadonlyArray<TableRule> = [
  { name: "alert", onOrganizationDeletion: "cascade" },
  { name: "alert_turn", onOrganizationDeletion: "cascade" },
  {
    name: "alert_history",
    onOrganizationDeletion: { action: "drain" },
    retention: { column: "at", age: "90 days" }
  },
  {
    name: "alert_mail",
    onOrganizationDeletion: "cascade",
    retention: { column: "handed_at", age: "30 days" }
  }
]
