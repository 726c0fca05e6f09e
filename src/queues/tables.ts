import type { TableRule } from "#src/store/table-rules.ts"

/** The reconciler empties a queue's tables; drained is what was published at the moment at which the queue went. */
export const tables: ReadonlyArray<TableRule> = [
  { name: "queue", onOrganizationDeletion: "cascade" },
  { name: "queue_slot", onOrganizationDeletion: "cascade" },
  { name: "queue_message", onOrganizationDeletion: { action: "drain" } },
  { name: "queue_backlog", onOrganizationDeletion: { action: "drain" } },
  { name: "queue_key", onOrganizationDeletion: { action: "drain" } }
]
