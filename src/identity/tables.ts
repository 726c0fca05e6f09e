import type { TableRule } from "#src/store/table-rules.ts"

export const tables: ReadonlyArray<TableRule> = [
  { name: "account", onOrganizationDeletion: "none" },
  { name: "password", onOrganizationDeletion: "none" },
  { name: "external_identity", onOrganizationDeletion: "none" },
  { name: "session", onOrganizationDeletion: "none", retention: { column: "expires_at", age: "0" } },
  { name: "mail_token", onOrganizationDeletion: "none", retention: { column: "expires_at", age: "1 day" } }
]
