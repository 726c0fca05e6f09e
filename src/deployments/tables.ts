import type { TableRule } from "#src/store/table-rules.ts"

export const tables: ReadonlyArray<TableRule> = [
  { name: "deployment_log", onOrganizationDeletion: { action: "drain" } },
  { name: "deployment", onOrganizationDeletion: { action: "drain" } }
]
