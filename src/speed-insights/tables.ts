import type { TableRule } from "#src/store/table-rules.ts"

export const tables: ReadonlyArray<TableRule> = [
  { name: "speed_project", onOrganizationDeletion: "cascade" },
  // Its days are dropped whole (`partitions.ts`), also those of projects that are gone.
  { name: "speed_batch", onOrganizationDeletion: "keep" },
  { name: "speed_intake", onOrganizationDeletion: "keep", retention: { column: "day", age: "31 days" } },
  { name: "speed_day", onOrganizationDeletion: "cascade", retention: { column: "day", age: "31 days" } },
  { name: "speed_rollup", onOrganizationDeletion: "none" }
]
