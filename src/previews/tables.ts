import type { TableRule } from "#src/store/table-rules.ts"

export const tables: ReadonlyArray<TableRule> = [
  { name: "pull_request_look", onOrganizationDeletion: "cascade" }
]
