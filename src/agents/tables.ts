import type { TableRule } from "#src/store/table-rules.ts"

export const tables: ReadonlyArray<TableRule> = [
  {
    name: "authorization_request",
    onOrganizationDeletion: "none",
    retention: { column: "expires_at", age: "0" }
  },
  // A code that is redeemed again is told from nonsense for so long. One that was not ends with its user's membership.
  {
    name: "authorization_code",
    onOrganizationDeletion: "cascade",
    retention: { column: "expires_at", age: "1 day" }
  },
  {
    name: "agent_access_token",
    onOrganizationDeletion: "cascade",
    retention: { column: "expires_at", age: "0" }
  },
  // The audit log names grants, and is kept as long.
  {
    name: "agent_grant",
    onOrganizationDeletion: { action: "revoke" },
    retention: { column: "expires_at", age: "400 days" }
  }
]
