import type { TableRule } from "#src/store/table-rules.ts"
import { tokenPlace } from "./AppServiceTokens.ts"

export const tables: ReadonlyArray<TableRule> = [
  {
    name: "app_service_token",
    onOrganizationDeletion: "delete",
    retention: { column: "expires_at", age: "0" },
    sealed: {
      key: [
        ["org_id", "uuid"],
        ["id", "uuid"]
      ],
      place: (orgId = "", id = "") => tokenPlace(orgId, id),
      batch: 200
    }
  }
]
