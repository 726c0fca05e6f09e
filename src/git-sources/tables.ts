import type { TableRule } from "#src/store/table-rules.ts"

export const tables: ReadonlyArray<TableRule> = [
  { name: "git_source", onOrganizationDeletion: "cascade" },
  { name: "git_source_review", onOrganizationDeletion: "cascade" }
]
