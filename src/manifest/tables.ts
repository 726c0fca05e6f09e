import type { TableRule } from "#src/store/table-rules.ts"
import { planPlace } from "./Plans.ts"

export const tables: ReadonlyArray<TableRule> = [
  {
    name: "plan",
    onOrganizationDeletion: "cascade",
    retention: { column: "expires_at", age: "0" },
    sealed: {
      key: [
        ["org_id", "uuid"],
        ["id", "uuid"]
      ],
      place: (orgId = "", id = "") => planPlace(orgId, id),
      batch: 5
    }
  }
]
