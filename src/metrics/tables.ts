import type { TableRule } from "#src/store/table-rules.ts"

/** Nobody measures what is deleted, or has been over for long. */
const over = `(t.at < now() - interval '1 day' or not exists (
  select from resource r where r.org_id = t.org_id and r.uid = t.uid and r.deleted_at is null))`

export const tables: ReadonlyArray<TableRule> = [
  { name: "metric_turn", onOrganizationDeletion: "none" },
  {
    name: "metric_now",
    onOrganizationDeletion: "cascade",
    retention: { column: "at", age: "5 minutes", onlyIf: over }
  },
  // What could be packed was packed long before.
  {
    name: "metric_sample",
    onOrganizationDeletion: { action: "drain" },
    retention: { column: "at", age: "1 day" }
  },
  { name: "metric_raw", onOrganizationDeletion: "cascade", retention: { column: "start", age: "25 hours" } },
  {
    name: "metric_five_minutes",
    onOrganizationDeletion: "cascade",
    retention: { column: "start", age: "30 days 1 hour" }
  },
  {
    name: "metric_hour",
    onOrganizationDeletion: "cascade",
    retention: { column: "start", age: "13 months 1 day" }
  }
]
