import type { TableRule } from "#src/store/table-rules.ts"

export const tables: ReadonlyArray<TableRule> = [
  {
    name: "telemetry_event",
    onOrganizationDeletion: "none",
    retention: { column: "received_at", age: "90 days" }
  },
  {
    name: "telemetry_step",
    onOrganizationDeletion: "cascade",
    // The others are once for an organization: without its row one would be recorded again.
    retention: { column: "at", age: "90 days", onlyIf: "t.name = 'agent_connected'" }
  }
]
