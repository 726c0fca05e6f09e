/** Branches: full, independent copies of a database. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { DatabaseBranch, ExpiresInDays } from "#schemas/database-branch.ts"
import { EnvironmentSlug, Name, Uid } from "#schemas/names.ts"
import { Id, idempotencyKey, Timestamp } from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { problems } from "#src/api/definition/problem.ts"
import { inProject, resourceOperations } from "#src/api/definition/resource-group.ts"
import { DatabaseCredentials } from "#src/databases/api.ts"

const Percent = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 100 }))

export const BranchView = Schema.Struct({
  id: Id,
  sourceDatabaseId: Schema.NullOr(Id),
  databaseId: Schema.NullOr(Id).annotate({
    description: "The database that it was promoted to; null before"
  }),
  name: Schema.String,
  environment: Schema.String,
  region: Schema.String,
  sku: Schema.String,
  source: Schema.Struct({
    kind: Schema.Literals(["current", "backup", "point_in_time", "replaced"]).annotate({
      description: "`replaced`: the data that a promoted branch took the place of"
    }),
    backupId: Schema.NullOr(Id),
    pointInTime: Schema.NullOr(Timestamp)
  }),
  status: Schema.Literals(["queued", "hydrating", "ready", "failed", "expired", "promoted"]),
  failure: Schema.NullOr(
    Schema.Struct({ code: Schema.String, step: Schema.NullOr(Schema.String), detail: Schema.String })
  ).annotate({
    description:
      "Why the last try, or a promotion that was to follow by itself, came to nothing; null otherwise"
  }),
  progressPercent: Percent,
  hydrationMode: Schema.Literal("full_copy"),
  hydrationProgressPercent: Percent.annotate({
    description: "Share of the bytes that are copied and compared"
  }),
  connectionReady: Schema.Boolean.annotate({ description: "The independent server accepts connections" }),
  fullyHydrated: Schema.Boolean.annotate({ description: "Every block is copied and compared" }),
  host: Schema.NullOr(Schema.String),
  port: Schema.NullOr(Schema.Int),
  deleteOnPreviewClose: Schema.Boolean,
  expiresAt: Schema.NullOr(Timestamp).annotate({ description: "null: never" }),
  createdAt: Timestamp
}).annotate({ identifier: "DatabaseBranch" })
export type BranchView = typeof BranchView.Type
export const BranchList = Schema.Array(BranchView)

/** RFC 3339, with a zone. */
const Instant = Schema.String.check(
  Schema.isPattern(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/u, {
    expected: "a date and time with a zone, such as 2026-02-01T12:30:00Z"
  }),
  Schema.makeFilter((text: string) => (Number.isNaN(Date.parse(text)) ? "is no date" : undefined))
).annotate({ format: "date-time" })
const Source = Schema.Union([
  Schema.Struct({
    kind: Schema.Literal("current"),
    backupId: Schema.optionalKey(Schema.Null),
    pointInTime: Schema.optionalKey(Schema.Null)
  }),
  Schema.Struct({
    kind: Schema.Literal("backup"),
    backupId: Uid,
    pointInTime: Schema.optionalKey(Schema.Null)
  }),
  Schema.Struct({
    kind: Schema.Literal("point_in_time"),
    pointInTime: Instant,
    backupId: Schema.optionalKey(Schema.Null)
  })
])

const database = { type: "resource", param: "databaseId", kind: "Database" } as const
const branches = resourceOperations({
  group: "databaseBranches",
  kind: DatabaseBranch,
  noun: "branch",
  parent: {
    path: `${inProject.path}/databases/:databaseId`,
    params: { ...inProject.params, databaseId: Id },
    lists: database,
    creates: database
  },
  segment: "branches",
  param: "branchId",
  view: BranchView
})
const { one, params, target } = branches

export const DatabaseBranches = group("databaseBranches", "Full, independent copies of a database.").add(
  branches.list({ summary: "List the branches of a database" }),
  branches.create({
    payload: Schema.Struct({
      name: Name,
      environment: EnvironmentSlug,
      region: Schema.NonEmptyString.check(Schema.isMaxLength(64)),
      sku: Schema.NonEmptyString.check(Schema.isMaxLength(64)),
      source: Source,
      expiresInDays: Schema.optionalKey(
        ExpiresInDays.annotate({ description: "Default seven; null: it never expires" })
      ),
      deleteOnPreviewClose: Schema.optionalKey(Schema.Boolean),
      previewId: Schema.optionalKey(Schema.NullOr(Schema.String))
    }),
    success: BranchView,
    status: 202,
    risk: "dangerous",
    role: "owner",
    sensitive: true,
    summary: "Make a branch of a database"
  }),
  branches.get(),
  branches.update({
    payload: Schema.Struct({
      expiresInDays: Schema.optionalKey(
        ExpiresInDays.annotate({ description: "Days from now; null: it never expires" })
      ),
      deleteOnPreviewClose: Schema.optionalKey(Schema.Boolean)
    }),
    sensitive: true,
    summary: "Change the expiry of a branch"
  }),
  HttpApiEndpoint.post("promote", `${one}/promote`, {
    params,
    headers: idempotencyKey,
    success: BranchView.pipe(HttpApiSchema.status(202)),
    error: problems(402)
  }).annotateMerge(
    operation(
      "databaseBranches.promote",
      "dangerous",
      "owner",
      "Put the data of a branch in the place of the database's",
      { sensitive: true, billing: true, target }
    )
  ),
  HttpApiEndpoint.post("rotatePassword", `${one}/rotate`, {
    params,
    headers: idempotencyKey,
    success: DatabaseCredentials,
    error: problems(402)
  }).annotateMerge(
    operation("databaseBranches.rotatePassword", "write", "admin", "Replace the password of a branch", {
      sensitive: true,
      billing: true,
      target
    })
  ),
  branches.delete({ summary: "Delete a branch and its data" })
)
