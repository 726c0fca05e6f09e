/** Rules of the tables that belong to no feature. */
import { idempotencyPlace } from "./Idempotency.ts"
import { platformPlace, secretPlace } from "./Secrets.ts"
import type { TableRule } from "./table-rules.ts"

export const tables: ReadonlyArray<TableRule> = [
  { name: "schema_migration", onOrganizationDeletion: "none" },
  {
    name: "platform_secret",
    onOrganizationDeletion: "none",
    sealed: { key: [["name", "text"]], place: (name = "") => platformPlace(name), batch: 100 }
  },
  {
    name: "rate_limit",
    onOrganizationDeletion: "none",
    retention: { column: "updated_at", age: "1 hour" }
  },
  { name: "audit_log", onOrganizationDeletion: "keep", retention: { column: "at", age: "400 days" } },
  // What is paused would never be removed, and nobody is left to resume it.
  { name: "pause", onOrganizationDeletion: "delete", retention: { column: "until", age: "0" } },
  {
    name: "resource_event",
    onOrganizationDeletion: { action: "drain" },
    retention: { column: "last_at", age: "30 days" }
  },
  {
    name: "idempotency",
    onOrganizationDeletion: { action: "drain" },
    retention: { column: "created_at", age: "24 hours" },
    sealed: {
      key: [
        ["org_id", "uuid"],
        ["credential", "text"],
        ["key", "text"]
      ],
      place: (orgId = "", credential = "", key = "") => idempotencyPlace({ orgId, credential, key }),
      batch: 20
    }
  },
  {
    name: "secret",
    onOrganizationDeletion: { action: "drain" },
    sealed: {
      key: [
        ["org_id", "uuid"],
        ["uid", "uuid"],
        ["field", "text"]
      ],
      place: (orgId = "", uid = "", field = "") => secretPlace({ orgId, uid, field }),
      batch: 200
    }
  },
  { name: "resource_reference", onOrganizationDeletion: "cascade" },
  { name: "engine_process", onOrganizationDeletion: "none" },
  { name: "work", onOrganizationDeletion: { action: "drain" } },
  {
    name: "resource",
    onOrganizationDeletion: { action: "drain", onlyIf: "deleted_at is not null" },
    // Followers of the feed have a week to learn of a deletion.
    retention: { column: "deleted_at", age: "7 days" }
  }
]
