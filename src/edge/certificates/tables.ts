import type { TableRule } from "#src/store/table-rules.ts"
import { certificatePlace } from "./Certificates.ts"
import { orderPlace } from "./jobs.ts"

export const certificateTables: ReadonlyArray<TableRule> = [
  {
    name: "edge_certificate",
    onOrganizationDeletion: "cascade",
    // Of a name that nobody has any more: its domain takes it along, unless it went otherwise. One that another organization
    // may still prove stays, and so does one that was asked for a moment ago.
    retention: {
      column: "created_at",
      age: "1 hour",
      onlyIf: `t.org_id is not null and not exists (
        select from domain_claim c where c.hostname = t.name
          and (c.org_id = t.org_id or c.proved_at is not null or c.claimed_at > now() - interval '7 days'))`
    },
    sealed: { key: [["name", "text"]], place: (name = "") => certificatePlace(name), batch: 200 }
  },
  {
    name: "edge_certificate_order",
    // It goes with its certificate. Authorities keep an order for a week or less.
    onOrganizationDeletion: "none",
    retention: { column: "created_at", age: "8 days" },
    sealed: { key: [["name", "text"]], place: (name = "") => orderPlace(name), batch: 200 }
  },
  {
    name: "edge_order_limit",
    onOrganizationDeletion: "cascade",
    retention: { column: "ordered_until", age: "1 hour" }
  },
  {
    name: "edge_challenge",
    onOrganizationDeletion: "none",
    retention: { column: "expires_at", age: "1 hour" }
  }
]
