import type { TableRule } from "#src/store/table-rules.ts"

export const tables: ReadonlyArray<TableRule> = [
  { name: "access_invitation", onOrganizationDeletion: "cascade" },
  {
    name: "visit_code",
    onOrganizationDeletion: "cascade",
    retention: { column: "expires_at", age: "0" }
  },
  { name: "visit", onOrganizationDeletion: "cascade", retention: { column: "expires_at", age: "0" } }
]
