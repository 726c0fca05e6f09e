import type { TableRule } from "#src/store/table-rules.ts"

export const tables: ReadonlyArray<TableRule> = [
  { name: "access_invitation", onOrganizationDeletion: "cascade" },
  // What gives access goes with the request to delete the organization.
  { name: "visit_code", onOrganizationDeletion: "delete", retention: { column: "expires_at", age: "0" } },
  { name: "visit", onOrganizationDeletion: "delete", retention: { column: "expires_at", age: "0" } }
]
