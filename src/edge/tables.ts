import type { TableRule } from "#src/store/table-rules.ts"
import { certificateTables } from "./certificates/tables.ts"

export const tables: ReadonlyArray<TableRule> = [
  { name: "edge_site", onOrganizationDeletion: "cascade" },
  { name: "edge_host", onOrganizationDeletion: "cascade" },
  { name: "edge_request_counter", onOrganizationDeletion: "cascade" },
  {
    name: "edge_request",
    onOrganizationDeletion: "cascade",
    retention: { column: "at", age: "1 day" }
  },
  {
    name: "edge_request_minute",
    onOrganizationDeletion: "cascade",
    retention: { column: "minute", age: "30 days" }
  },
  { name: "edge_load", onOrganizationDeletion: "cascade", retention: { column: "at", age: "1 hour" } },
  {
    name: "edge_node",
    onOrganizationDeletion: "none",
    retention: { column: "alive_until", age: "1 day" }
  },
  ...certificateTables
]
