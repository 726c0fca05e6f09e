import type { TableRule } from "#src/store/table-rules.ts"

export const tables: ReadonlyArray<TableRule> = [
  // Its own row is the end of its deletion.
  { name: "organization", onOrganizationDeletion: "none" },
  { name: "organization_slug", onOrganizationDeletion: "cascade" },
  { name: "member", onOrganizationDeletion: "delete" },
  { name: "api_key", onOrganizationDeletion: { action: "revoke" } },
  {
    name: "invitation",
    onOrganizationDeletion: { action: "revoke", onlyIf: "accepted_at is null" },
    retention: { column: "expires_at", age: "90 days" }
  }
]
