/** `DatabaseBranch`: a full, independent copy of a database as it is now or was at an instant. */
import * as Schema from "effect/Schema"
import { DatabaseSku, defaultDatabaseSku, localRegion, Region } from "./catalog.ts"
import { progress, warning } from "./condition.ts"
import { inputOf, withDefault } from "./input.ts"
import { defineKind } from "./kind.ts"
import { section } from "./manifest-mapping.ts"
import { EnvironmentSlug, Name } from "./names.ts"

export const BranchSource = Schema.Union([
  Schema.Struct({ kind: Schema.Literal("current") }),
  Schema.Struct({ kind: Schema.Literal("backup"), backupId: Schema.String }),
  Schema.Struct({ kind: Schema.Literal("point_in_time"), pointInTime: Schema.String }),
  /** The data that a promoted branch took the place of; no request can ask for it. */
  Schema.Struct({ kind: Schema.Literal("replaced") })
]).annotate({ identifier: "BranchSource" })
export type BranchSource = typeof BranchSource.Type

/** Days until a branch expires; null: never. */
export const ExpiresInDays = Schema.NullOr(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 3_650 })))
const defaultExpiryDays = 7

/** The branch that a manifest tells of: one for each project, in the environment `preview`. */
export const manifestBranch = { environment: "preview", name: "preview" } as const

export const DatabaseBranchSpec = Schema.Struct({
  sourceEnvironment: EnvironmentSlug.annotateKey({ description: "Environment of the database" }),
  sourceDatabase: Name.annotateKey({ description: "The database that it is a copy of" }),
  expiresInDays: withDefault(ExpiresInDays, defaultExpiryDays, "Days until it is deleted; null: never"),
  deleteOnPreviewClose: withDefault(
    Schema.Boolean,
    false,
    "Whether it goes when the preview that it was made for is closed"
  ),
  /** Absent for a branch from a manifest: then the database is found by its environment and name. */
  sourceDatabaseId: Schema.optionalKey(Schema.String),
  source: withDefault(BranchSource, { kind: "current" }),
  region: withDefault(Region, localRegion),
  sku: withDefault(DatabaseSku, defaultDatabaseSku),
  /** From when the days count: when the branch was made, or when they were last set. */
  expiresFrom: Schema.optionalKey(Schema.String),
  /** The preview that it was made for. */
  previewId: Schema.optionalKey(Schema.String),
  /** Rises with every rotation; the password itself is sealed under the secret field `password`. */
  credentialVersion: withDefault(Schema.Int, 1),
  /** It is promoted as soon as it is ready. */
  promoteWhenReady: withDefault(Schema.Boolean, false),
  /** Why it was not promoted when it was ready, and will not be by itself. */
  promotionRefused: Schema.optionalKey(Schema.Struct({ code: Schema.String, detail: Schema.String })),
  /** The database that it is promoted to: its data folder goes there. */
  promotedTo: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "DatabaseBranchSpec" })
export type DatabaseBranchSpec = typeof DatabaseBranchSpec.Type

const internal = [
  "sourceDatabaseId",
  "source",
  "region",
  "sku",
  "expiresFrom",
  "previewId",
  "credentialVersion",
  "promoteWhenReady",
  "promotionRefused",
  "promotedTo"
] as const
/** What a manifest says of a branch. */
const DatabaseBranchInput = inputOf(DatabaseBranchSpec, internal)

const BranchFailure = Schema.Struct({
  code: Schema.String,
  step: Schema.String,
  detail: Schema.String
}).annotate({ identifier: "BranchFailure" })

export const DatabaseBranchStatus = Schema.Struct({
  state: Schema.Literals(["queued", "hydrating", "ready", "expired", "promoted"]),
  sourceDatabaseId: Schema.NullOr(Schema.String),
  /** What it does to become ready. */
  step: Schema.NullOr(Schema.String),
  doneBytes: Schema.Int,
  totalBytes: Schema.Int,
  /** Every block is copied and compared, and the log is replayed. */
  hydrated: Schema.Boolean,
  failure: Schema.NullOr(BranchFailure),
  host: Schema.NullOr(Schema.String),
  port: Schema.NullOr(Schema.Int),
  dbName: Schema.NullOr(Schema.String),
  user: Schema.NullOr(Schema.String),
  server: Schema.NullOr(Schema.String),
  certificateExpiresAt: Schema.NullOr(Schema.String),
  /** Processes that the kernel ended for the memory limit, as far as that was told. Absent: none. */
  memoryKills: Schema.optionalKey(Schema.Int)
}).annotate({ identifier: "DatabaseBranchStatus" })
export type DatabaseBranchStatus = typeof DatabaseBranchStatus.Type

export const DatabaseBranchFacts = Schema.Struct({
  /** It had its data: another copy would hold other data than what users have seen. */
  hydrated: Schema.optionalKey(Schema.Boolean),
  /** Postgres's own identifier of that data. */
  systemIdentifier: Schema.optionalKey(Schema.String)
})
export type DatabaseBranchFacts = typeof DatabaseBranchFacts.Type

/** When a version 7 UUID was made (RFC 9562): a resource's is the time of its creation. */
const madeAt = (uid: string): number => Number.parseInt(uid.replaceAll("-", "").slice(0, 12), 16)

const day = 86_400_000
/** Undefined: never. */
export const expiryOf = (
  uid: string,
  { expiresFrom, expiresInDays }: Pick<DatabaseBranchSpec, "expiresFrom" | "expiresInDays">
): number | undefined =>
  expiresInDays === null
    ? undefined
    : (expiresFrom === undefined ? madeAt(uid) : Date.parse(expiresFrom)) + expiresInDays * day

export const DatabaseBranch = defineKind({
  name: "DatabaseBranch",
  summary: "A full, independent copy of a database as it is now or was at an instant.",
  scope: "environment",
  placement: "host",
  spec: DatabaseBranchSpec,
  status: DatabaseBranchStatus,
  facts: DatabaseBranchFacts,
  fields: Object.keys(DatabaseBranchSpec.fields),
  immutable: ["sourceEnvironment", "sourceDatabase"],
  internal,
  generated: ["password"],
  // A branch is a copy of its own: the database may go, and one that a manifest names may come later.
  references: [
    {
      path: "/sourceDatabase",
      kind: "Database",
      by: "name",
      environment: "/sourceEnvironment",
      required: false,
      listed: true
    }
  ],
  singleton: false,
  deleteRole: "owner",
  reasons: {
    Queued: progress("Other copies are under way; it begins when it is its turn"),
    Hydrating: progress("The data is being copied, or its log replayed"),
    HydrationFailed: warning("The copy came to nothing; the message says why, and at which step"),
    DataLost: warning("The data folder is gone; another copy would hold other data"),
    WrongData: warning("The data folder holds the data of another server; nothing is done with it"),
    SourceNotReady: progress("The database that it is a copy of is not up; it is waited for"),
    SourceMissing: warning("The database that it should be a branch of is not there"),
    PreviewDataForbidden: warning("The project does not allow copies of production data in previews"),
    NotPromoted: warning(
      "It was to be promoted and is not, for a reason that does not pass; its own data can be used"
    ),
    Promoting: progress("Its data takes the place of a database's"),
    ServerStarting: progress("The server process was started and does not answer yet"),
    ServerDown: warning("The server process is gone; it is started again"),
    NotAnswering: warning("The server process is there and does not answer; it is looked at again soon"),
    OutOfMemory: warning("The kernel ended a process of the server because its memory limit was reached"),
    Recovering: progress("The server replays its log after a crash")
  },
  manifest: section({
    section: "databaseBranch",
    fields: {
      databaseBranch: Schema.optionalKey(DatabaseBranchInput).annotateKey({
        description: "A copy of a database for the environment preview"
      })
    },
    entries: ({ databaseBranch }) =>
      databaseBranch === undefined
        ? undefined
        : [{ path: ["databaseBranch"], ...manifestBranch, spec: { ...databaseBranch } }],
    manages: ({ environment, name }) =>
      environment === manifestBranch.environment && name === manifestBranch.name,
    assemble: ([branch]) => (branch === undefined ? {} : { databaseBranch: branch.spec })
  }),
  // Large databases take hours; a hydration without progress fails by itself long before.
  deadlineSeconds: 86_400
})
