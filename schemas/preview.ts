/** `Preview`: what one pull request looks like while it is open: an environment with an address, and perhaps data. */
import * as Schema from "effect/Schema"
import { progress, warning } from "./condition.ts"
import { ExpiresInDays } from "./database-branch.ts"
import { lineOf } from "./display-text.ts"
import { withDefault } from "./input.ts"
import { defineKind } from "./kind.ts"
import { EnvironmentSlug, Name } from "./names.ts"

export const Commit = Schema.String.check(
  Schema.isPattern(/^(?:[0-9a-f]{40}|[0-9a-f]{64})$/u, { expected: "the full id of a commit" })
)
export const PullRequestNumber = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 999_999_999 }))

/** The database whose copy a preview has, where that is not what the project's `databaseBranch` says. */
export const PreviewDatabase = Schema.Struct({
  sourceEnvironment: EnvironmentSlug.annotateKey({ description: "Environment of the database" }),
  sourceDatabase: Name.annotateKey({ description: "The database that is copied" }),
  expiresInDays: withDefault(ExpiresInDays, 7, "Days until the copy is deleted; null: not before the preview")
}).annotate({ identifier: "PreviewDatabase" })

export const PreviewSpec = Schema.Struct({
  pullRequest: PullRequestNumber,
  commit: Commit.annotateKey({ description: "What the pull request would merge" }),
  title: withDefault(Schema.NullOr(lineOf(300)), null),
  fork: withDefault(Schema.Boolean, false, "Its commits are in somebody else's repository"),
  /** Of a fork: the commit that somebody let have secrets and data. */
  approvedCommit: withDefault(Schema.NullOr(Commit), null),
  /** Absent: as the project's `databaseBranch` says; null: none. */
  database: Schema.optionalKey(Schema.NullOr(PreviewDatabase)),
  expiresAt: withDefault(Schema.NullOr(Schema.String), null),
  /** The forge says what it is at, and its commits are deployed by themselves. */
  followed: withDefault(Schema.Boolean, false),
  /** Address of the repository whose pull request is followed. */
  repository: withDefault(Schema.NullOr(Schema.String), null)
}).annotate({ identifier: "PreviewSpec" })
export type PreviewSpec = typeof PreviewSpec.Type

/** Whether what runs there may have secrets and data: of a fork, the commit that is there was approved. */
export const isTrusted = ({ fork, approvedCommit, commit }: PreviewSpec): boolean =>
  !fork || approvedCommit === commit

export const previewBranch = "preview"

export const PreviewStatus = Schema.Struct({
  /** Absent before it was made. */
  environmentId: Schema.NullOr(Schema.String),
  address: Schema.NullOr(Schema.String),
  /** Of the copy that it has. */
  branchId: Schema.NullOr(Schema.String),
  /** Of its commit; only where commits are deployed by themselves. */
  deploymentId: Schema.NullOr(Schema.String)
}).annotate({ identifier: "PreviewStatus" })
export type PreviewStatus = typeof PreviewStatus.Type

export const Preview = defineKind({
  name: "Preview",
  summary:
    "What one pull request looks like while it is open: an environment with an address, and perhaps data.",
  scope: "project",
  spec: PreviewSpec,
  status: PreviewStatus,
  fields: Object.keys(PreviewSpec.fields),
  immutable: ["pullRequest", "fork"],
  internal: ["approvedCommit", "followed", "repository"],
  generated: [],
  references: [],
  singleton: false,
  deleteRole: "admin",
  reasons: {
    ApprovalNeeded: progress("It is of a fork: it has no secrets and no data until its commit is approved"),
    BillingInactive: warning("Billing of the organization is not active"),
    SourceUnavailable: warning("Its commit cannot be found in the repository"),
    SourceMissing: warning("The database that it should have a copy of is not there"),
    PreviewDataForbidden: warning("The project does not allow copies of production data in previews"),
    EnvironmentTaken: warning("An environment that somebody made has the name that the preview's would have")
  },
  deadlineSeconds: 3600
})
