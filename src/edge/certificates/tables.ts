import type { TableRule } from "#src/store/table-rules.ts"
import { certificatePlace } from "./Certificates.ts"
import { orderPlace } from "./jobs.ts"

export const certificateTables: ReadonlyArray<TableRule> = [
  {
    name: "edge_certificate",
    onOrganizationDeletion: "cascade",
    sealed: { key: [["name", "text"]], place: (name = "") => certificatePlace(name), batch: 200 }
  },
  {
    name: "edge_certificate_order",
    // It goes with its certificate.
    onOrganizationDeletion: "none",
    sealed: { key: [["name", "text"]], place: (name = "") => orderPlace(name), batch: 200 }
  },
  {
    name: "edge_challenge",
    onOrganizationDeletion: "none",
    retention: { column: "expires_at", age: "1 hour" }
  }
]
