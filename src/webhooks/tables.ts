import type { TableRule } from "#src/store/table-rules.ts"
import { webhookPlace } from "./secrets.ts"

export const tables: ReadonlyArray<TableRule> = [
  {
    name: "webhook",
    onOrganizationDeletion: "delete",
    sealed: {
      key: [
        ["org_id", "uuid"],
        ["id", "uuid"]
      ],
      place: (orgId = "", id = "") => webhookPlace(orgId, id),
      batch: 200
    }
  },
  // With its deliveries: the last try of any is long past.
  {
    name: "webhook_event",
    onOrganizationDeletion: "cascade",
    retention: { column: "created_at", age: "30 days" }
  },
  { name: "webhook_delivery", onOrganizationDeletion: "cascade" }
]
