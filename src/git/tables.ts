import type { TableRule } from "#src/store/table-rules.ts"
import { connectionPlace } from "./connection-secrets.ts"

export const tables: ReadonlyArray<TableRule> = [
  {
    name: "git_connection",
    onOrganizationDeletion: "delete",
    sealed: {
      key: [
        ["org_id", "uuid"],
        ["id", "uuid"]
      ],
      place: (orgId = "", id = "") => connectionPlace(orgId, id),
      batch: 200
    }
  },
  // Forges send a delivery again only for some days, and by hand.
  {
    name: "git_delivery",
    onOrganizationDeletion: "cascade",
    retention: { column: "received_at", age: "30 days" }
  },
  { name: "git_branch", onOrganizationDeletion: "cascade" }
]
