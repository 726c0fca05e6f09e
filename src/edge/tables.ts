import type { TableRule } from "#src/store/table-rules.ts"
import { certificateTables } from "./certificates/tables.ts"

export const tables: ReadonlyArray<TableRule> = [
  { name: "edge_site", onOrganizationDeletion: "cascade" },
  { name: "edge_host", onOrganizationDeletion: "cascade" },
  {
    name: "edge_node",
    onOrganizationDeletion: "none",
    retention: { column: "alive_until", age: "1 day" }
  },
  ...certificateTables
]
