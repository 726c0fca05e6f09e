/** Branches: full, independent copies of a database. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { ExpiresInDays } from "#schemas/database-branch.ts"
import { EnvironmentSlug, Name, Uid } from "#schemas/names.ts"
import { DatabaseCredentials } from "./database.ts"
import { Deleted, Id, idempotencyKey, ifMatch, projectParams, Timestamp, withEtag } from "./fields.ts"
import { group, operation } from "./operation.ts"
import { bodyProblems, problems } from "./problem.ts"

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

const base = "/v1/orgs/:orgId/projects/:projectId/databases/:databaseId/branches"
const one = `${base}/:branchId` as const
const params = { ...projectParams, databaseId: Id }
const oneParams = { ...params, branchId: Id }
const database = { type: "resource", param: "databaseId", kind: "Database" } as const
const branch = { type: "resource", param: "branchId", kind: "DatabaseBranch" } as const

export const DatabaseBranches = group("databaseBranches", "Full, independent copies of a database.").add(
  HttpApiEndpoint.get("list", base, { params, success: BranchList, error: problems() }).annotateMerge(
    operation("databaseBranches.list", "read", "member", "List the branches of a database", {
      target: database
    })
  ),
  HttpApiEndpoint.post("create", base, {
    params,
    headers: idempotencyKey,
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
    success: BranchView.pipe(HttpApiSchema.status(202)),
    error: bodyProblems(402)
  }).annotateMerge(
    operation("databaseBranches.create", "dangerous", "owner", "Make a branch of a database", {
      sensitive: true,
      billing: true,
      target: database
    })
  ),
  HttpApiEndpoint.get("get", one, {
    params: oneParams,
    success: withEtag(BranchView),
    error: problems()
  }).annotateMerge(operation("databaseBranches.get", "read", "member", "Read a branch", { target: branch })),
  HttpApiEndpoint.patch("update", one, {
    params: oneParams,
    headers: ifMatch,
    payload: Schema.Struct({
      expiresInDays: Schema.optionalKey(
        ExpiresInDays.annotate({ description: "Days from now; null: it never expires" })
      ),
      deleteOnPreviewClose: Schema.optionalKey(Schema.Boolean)
    }),
    success: withEtag(BranchView),
    error: bodyProblems(402, 412)
  }).annotateMerge(
    operation("databaseBranches.update", "write", "admin", "Change the expiry of a branch", {
      sensitive: true,
      billing: true,
      target: branch
    })
  ),
  HttpApiEndpoint.post("promote", `${one}/promote`, {
    params: oneParams,
    headers: idempotencyKey,
    success: BranchView.pipe(HttpApiSchema.status(202)),
    error: problems(402)
  }).annotateMerge(
    operation(
      "databaseBranches.promote",
      "dangerous",
      "owner",
      "Put the data of a branch in the place of the database's",
      { sensitive: true, billing: true, target: branch }
    )
  ),
  HttpApiEndpoint.post("rotatePassword", `${one}/rotate`, {
    params: oneParams,
    headers: idempotencyKey,
    success: DatabaseCredentials,
    error: problems(402)
  }).annotateMerge(
    operation("databaseBranches.rotatePassword", "write", "admin", "Replace the password of a branch", {
      sensitive: true,
      billing: true,
      target: branch
    })
  ),
  HttpApiEndpoint.delete("delete", one, {
    params: oneParams,
    headers: ifMatch,
    success: Deleted,
    error: problems(412)
  }).annotateMerge(
    operation("databaseBranches.delete", "destructive", "owner", "Delete a branch and its data", {
      sensitive: true,
      target: branch
    })
  )
)
