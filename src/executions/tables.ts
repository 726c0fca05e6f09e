import type { TableRule } from "#src/store/table-rules.ts"

export const tables: ReadonlyArray<TableRule> = [
  { name: "execution", onOrganizationDeletion: { action: "drain" } },
  { name: "execution_log", onOrganizationDeletion: { action: "drain" } },
  { name: "execution_room", onOrganizationDeletion: "cascade" },
  { name: "execution_org_room", onOrganizationDeletion: "cascade" }
]
