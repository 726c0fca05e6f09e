/** Backups of a database, and what can be restored from them. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { Name, Uid } from "#schemas/names.ts"
import { Id, idempotencyKey, projectParams, Timestamp } from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"
import { BranchView } from "#src/branches/api.ts"

const Bytes = Schema.Int

export const BackupView = Schema.Struct({
  id: Id,
  databaseId: Id,
  status: Schema.Literals(["queued", "running", "succeeded", "failed"]),
  reason: Schema.String.annotate({
    description:
      "`schedule`, `request`, `first`, `gap` (the log has a hole), `timeline` (the server changed), `destination` (a new one)"
  }),
  createdAt: Timestamp,
  startedAt: Schema.NullOr(Timestamp),
  finishedAt: Schema.NullOr(Timestamp),
  step: Schema.NullOr(Schema.String).annotate({ description: "What it is doing" }),
  progressPercent: Schema.Int,
  sizeBytes: Bytes.annotate({ description: "Of the database" }),
  storedBytes: Schema.NullOr(Bytes).annotate({ description: "Compressed and sealed" }),
  recoverableFrom: Schema.NullOr(Timestamp).annotate({
    description: "The first moment that can be restored with it"
  }),
  locations: Schema.Array(
    Schema.Struct({
      kind: Schema.Literals(["local", "destination"]),
      destinationId: Schema.NullOr(Id),
      version: Schema.NullOr(Schema.Int).annotate({
        description: "Of the destination when it was put there"
      }),
      complete: Schema.Boolean
    })
  ),
  lastProvenAt: Schema.NullOr(Timestamp).annotate({ description: "When it was last restored to prove it" }),
  drill: Schema.NullOr(
    Schema.Struct({
      status: Schema.Literals(["queued", "running", "succeeded", "failed"]),
      error: Schema.NullOr(Schema.String)
    })
  ).annotate({ description: "The last restore that was to prove it" }),
  error: Schema.NullOr(Schema.String)
}).annotate({ identifier: "Backup" })
export const BackupList = Schema.Array(BackupView)

export const RecoveryPoints = Schema.Struct({
  at: Timestamp.annotate({ description: "When this was looked at, by the clock that moments are of" }),
  windows: Schema.Array(Schema.Struct({ from: Timestamp, to: Timestamp })).annotate({
    description: "Any moment of these can be restored; later ones up to now as well while the database runs"
  }),
  backups: Schema.Array(BackupView).annotate({ description: "Those that can be restored, newest first" }),
  newestBackupAgeSeconds: Schema.NullOr(Schema.Int),
  lastProvenAt: Schema.NullOr(Timestamp),
  archiving: Schema.Struct({
    ok: Schema.Boolean,
    reason: Schema.NullOr(Schema.String),
    message: Schema.NullOr(Schema.String)
  })
}).annotate({ identifier: "RecoveryPoints" })

/** RFC 3339, with a zone. */
const Instant = Schema.String.check(
  Schema.isPattern(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/u, {
    expected: "a date and time with a zone, such as 2026-02-01T12:30:00Z"
  }),
  Schema.makeFilter((text: string) => (Number.isNaN(Date.parse(text)) ? "is no date" : undefined))
).annotate({ format: "date-time" })

const database = "/v1/orgs/:orgId/projects/:projectId/databases/:databaseId"
const params = { ...projectParams, databaseId: Id }
const target = { type: "resource", param: "databaseId", kind: "Database" } as const

export const Databases = group("databases", "What of a database can be restored.").add(
  HttpApiEndpoint.get("listRecoveryPoints", `${database}/recovery-points`, {
    params,
    success: RecoveryPoints,
    error: problems()
  }).annotateMerge(
    operation("databases.listRecoveryPoints", "read", "member", "What of a database can be restored", {
      target
    })
  )
)

export const Backups = group("backups", "Backups of a database, and restoring them.").add(
  HttpApiEndpoint.get("list", `${database}/backups`, {
    params,
    success: BackupList,
    error: problems()
  }).annotateMerge(operation("backups.list", "read", "member", "List the backups of a database", { target })),
  HttpApiEndpoint.post("create", `${database}/backups`, {
    params,
    headers: idempotencyKey,
    // In this order: a client encodes with the first that fits, and nothing fits everything.
    payload: [
      Schema.Struct({
        drill: Schema.optionalKey(
          Schema.Boolean.annotate({ description: "Prove it at once by restoring it into a scratch server" })
        )
      }),
      HttpApiSchema.NoContent
    ],
    success: BackupView.pipe(HttpApiSchema.status(202)),
    error: bodyProblems(402)
  }).annotateMerge(
    operation("backups.create", "write", "admin", "Back a database up now", { billing: true, target })
  ),
  HttpApiEndpoint.post("restore", `${database}/backups/restore`, {
    params,
    headers: idempotencyKey,
    payload: Schema.Union([
      Schema.Struct({ backupId: Uid, name: Schema.optionalKey(Name) }),
      Schema.Struct({ pointInTime: Instant, name: Schema.optionalKey(Name) })
    ]),
    success: BranchView.pipe(HttpApiSchema.status(202)),
    error: bodyProblems(402)
  }).annotateMerge(
    operation("backups.restore", "dangerous", "owner", "Put a database back to a backup or a moment", {
      sensitive: true,
      billing: true,
      target
    })
  )
)
