import type { TableRule } from "#src/store/table-rules.ts"
import { webhookSecretsPlace } from "./webhook-secrets.ts"

export const tables: ReadonlyArray<TableRule> = [
  {
    name: "payment_connection",
    onOrganizationDeletion: "cascade",
    sealed: {
      key: [
        ["org_id", "uuid"],
        ["uid", "uuid"]
      ],
      place: (orgId = "", uid = "") => webhookSecretsPlace(orgId, uid),
      batch: 200
    }
  },
  { name: "payment_object", onOrganizationDeletion: { action: "drain" } },
  // Long after Stripe has forgotten its idempotency keys.
  {
    name: "payment_intent",
    onOrganizationDeletion: { action: "drain" },
    retention: { column: "created_at", age: "30 days" }
  },
  // Stripe sends an event again for three days by itself, and for thirty when somebody asks it to.
  {
    name: "payment_event",
    onOrganizationDeletion: { action: "drain" },
    retention: {
      column: "received_at",
      age: "90 days",
      onlyIf: "t.status in ('processed', 'ignored', 'failed')"
    }
  }
]
