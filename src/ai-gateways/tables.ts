import type { TableRule } from "#src/store/table-rules.ts"

export const tables: ReadonlyArray<TableRule> = [
  { name: "ai_gateway_key", onOrganizationDeletion: { action: "revoke" } },
  { name: "ai_gateway_month", onOrganizationDeletion: "cascade" },
  {
    name: "ai_gateway_usage",
    onOrganizationDeletion: "cascade",
    retention: { column: "day", age: "400 days" }
  },
  // What is older than a call may last was settled by the sweep.
  { name: "ai_gateway_reservation", onOrganizationDeletion: { action: "drain" } },
  {
    name: "ai_gateway_request",
    onOrganizationDeletion: { action: "drain" },
    retention: { column: "ended_at", age: "7 days" }
  },
  {
    name: "ai_gateway_holder",
    onOrganizationDeletion: "none",
    retention: { column: "alive_until", age: "1 day" }
  }
]
