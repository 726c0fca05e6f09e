/** `Maintenance`: looking after a project on a schedule. One per project. */
import * as Schema from "effect/Schema"
import { inputOf, withDefault } from "./input.ts"
import { defineKind } from "./kind.ts"
import { singletonSection } from "./manifest-mapping.ts"
import { EnvironmentSlug } from "./names.ts"

/** The one name that the resource has in its project. */
export const maintenanceName = "maintenance"

export const maintenanceCategories = [
  "backups",
  "capacity",
  "certificates",
  "cost",
  "security",
  "versions",
  "drift"
] as const
export const MaintenanceCategory = Schema.Literals(maintenanceCategories).annotate({
  identifier: "MaintenanceCategory",
  description:
    "Backups and drills; room that runs out; certificates; unused things that cost; security settings; versions with fixes; drift and stuck resources"
})
export type MaintenanceCategory = typeof MaintenanceCategory.Type

export const MaintenanceSchedule = Schema.Literals(["hourly", "daily", "weekly"])
export type MaintenanceSchedule = typeof MaintenanceSchedule.Type

/**
 * Operations that may be carried out without a person. None of them destroys anything or takes away access, and an admin's
 * API key may call each.
 */
export const remediations = [
  "backupDestinations.test",
  "backups.create",
  "domains.check",
  "resources.protect",
  "resources.retry"
] as const
const Remediation = Schema.Literals(remediations).annotate({
  message: `must be an operation that may be carried out without a person: ${remediations.join(", ")}`
})

export const AutoRemediation = Schema.Struct({
  enabled: withDefault(Schema.Boolean, false, "Whether operations are carried out without being asked for"),
  maximumRisk: withDefault(
    Schema.Literals(["read", "write"]),
    "read",
    "The highest risk of an operation that is carried out; with `read` nothing is changed"
  ),
  allowedOperationIds: withDefault(
    Schema.Array(Remediation).check(Schema.isMaxLength(remediations.length), Schema.isUnique()),
    [],
    "The operations that may be carried out"
  ),
  maxActionsPerRun: withDefault(
    Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 100 })),
    5,
    "How many operations one run carries out at most"
  )
}).annotate({ identifier: "AutoRemediation" })
export type AutoRemediation = typeof AutoRemediation.Type

export const MaintenanceSpec = Schema.Struct({
  enabled: withDefault(Schema.Boolean, true, "Whether it looks by itself"),
  schedule: withDefault(MaintenanceSchedule, "daily", "How often it looks"),
  categories: withDefault(
    Schema.Array(MaintenanceCategory).check(
      Schema.isMaxLength(maintenanceCategories.length),
      Schema.isUnique()
    ),
    [],
    "What it looks at; empty: everything"
  ),
  environments: withDefault(
    Schema.Array(EnvironmentSlug).check(Schema.isMaxLength(100), Schema.isUnique()),
    [],
    "The environments that it looks at; empty: all of them"
  ),
  autoRemediation: withDefault(AutoRemediation, {}, "What it does about findings by itself")
}).annotate({ identifier: "MaintenanceSpec" })
export type MaintenanceSpec = typeof MaintenanceSpec.Type
export const MaintenanceInput = inputOf(MaintenanceSpec)

export const categoriesOf = ({
  categories
}: Pick<MaintenanceSpec, "categories">): ReadonlyArray<MaintenanceCategory> =>
  categories.length === 0 ? maintenanceCategories : categories

export const MaintenanceStatus = Schema.Struct({
  /** How often it looks; null: not by itself. */
  scheduled: Schema.NullOr(MaintenanceSchedule)
}).annotate({ identifier: "MaintenanceStatus" })
export type MaintenanceStatus = typeof MaintenanceStatus.Type

export const Maintenance = defineKind({
  name: "Maintenance",
  summary:
    "Looking after a project on a schedule: findings, and what may be done about them without a person.",
  scope: "project",
  spec: MaintenanceSpec,
  status: MaintenanceStatus,
  fields: Object.keys(MaintenanceSpec.fields),
  immutable: [],
  internal: [],
  generated: [],
  references: [],
  singleton: true,
  deleteRole: "admin",
  reasons: {},
  manifest: singletonSection(
    "maintenance",
    maintenanceName,
    "Looking after the project on a schedule",
    MaintenanceInput.fields
  ),
  deadlineSeconds: 60
})
