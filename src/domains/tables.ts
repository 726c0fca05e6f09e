import type { TableRule } from "#src/store/table-rules.ts"

export const tables: ReadonlyArray<TableRule> = [
  { name: "domain_claim", onOrganizationDeletion: "cascade" },
  {
    name: "domain_proof",
    onOrganizationDeletion: "keep",
    retention: { column: "proved_at", age: "400 days" }
  }
]
