import type { TableRule } from "#src/store/table-rules.ts"
import { destinationPlace } from "./destinations/seal.ts"
import { lineagePlace } from "./repository/lineage-place.ts"

/** What is stored outside is found by these rows alone, so they stay until the feature itself has removed it there. */
export const tables: ReadonlyArray<TableRule> = [
  {
    name: "backup_lineage",
    onOrganizationDeletion: "keep",
    sealed: {
      key: [
        ["org_id", "uuid"],
        ["lineage", "uuid"]
      ],
      place: (orgId = "", lineage = "") => lineagePlace(orgId, lineage),
      batch: 200
    }
  },
  { name: "backup_object", onOrganizationDeletion: "keep" },
  { name: "backup_copy", onOrganizationDeletion: "keep" },
  { name: "backup_job", onOrganizationDeletion: "keep" },
  { name: "backup_destination_pause", onOrganizationDeletion: "keep" },
  {
    name: "backup_destination_version",
    onOrganizationDeletion: "keep",
    sealed: {
      key: [
        ["org_id", "uuid"],
        ["destination_id", "uuid"],
        ["version", "integer"]
      ],
      place: (orgId = "", id = "", version = "") => destinationPlace(orgId, id, version),
      batch: 200
    },
    // Configurations that never came in force, and those of deleted destinations whose last copy is gone.
    retention: {
      column: "created_at",
      age: "1 hour",
      onlyIf: `not exists (select from resource r where r.org_id = t.org_id and r.uid = t.destination_id
          and r.deleted_at is null and (r.spec->>'version')::int >= t.version)
        and not exists (select from backup_copy c where c.org_id = t.org_id
          and c.destination_id = t.destination_id and c.version = t.version)`
    }
  }
]
