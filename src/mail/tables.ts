import type { TableRule } from "#src/store/table-rules.ts"
import { mailPlace } from "./Mail.ts"

export const tables: ReadonlyArray<TableRule> = [
  {
    name: "mail_outbox",
    onOrganizationDeletion: "cascade",
    retention: { column: "settled_at", age: "30 days" },
    sealed: { key: [["id", "uuid"]], place: (id = "") => mailPlace(id), batch: 200 }
  }
]
