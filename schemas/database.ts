/** `Database`: a Postgres server of its own for one environment. */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { BackupPolicy } from "./backup-policy.ts"
import { DatabaseSku, Region } from "./catalog.ts"
import { defineKind } from "./kind.ts"
import { listSection } from "./manifest-mapping.ts"

/** Name of a database that was provisioned without one. */
export const defaultDatabaseName = "main"

export const DatabaseSpec = Schema.Struct({
  sku: DatabaseSku.pipe(Schema.withDecodingDefaultKey(Effect.succeed("db-n1"))),
  region: Region,
  /** Rises with every rotation; the password itself is sealed under the secret field `password`. */
  credentialVersion: Schema.Int.pipe(Schema.withDecodingDefaultKey(Effect.succeed(1))),
  backup: BackupPolicy.pipe(Schema.withDecodingDefaultKey(Effect.succeed({}))),
  /** Which history its data folder belongs to, under which backups are kept. Absent: its own, named by its uid. */
  lineage: Schema.optionalKey(Schema.String),
  /** The branch that gets the data folder that the one of `lineage` takes the place of. */
  keptAs: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "DatabaseSpec" })
export type DatabaseSpec = typeof DatabaseSpec.Type

export const DatabaseStatus = Schema.Struct({
  host: Schema.String,
  port: Schema.Int,
  dbName: Schema.String,
  user: Schema.String,
  /** Version of the server program, such as `PostgreSQL 18.4`. */
  server: Schema.String,
  certificateExpiresAt: Schema.String,
  /** Which history the data folder belongs to. */
  lineage: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "DatabaseStatus" })
export type DatabaseStatus = typeof DatabaseStatus.Type

export const Database = defineKind({
  name: "Database",
  summary: "A Postgres server of its own, with TLS and write-ahead log archiving.",
  scope: "environment",
  spec: DatabaseSpec,
  status: DatabaseStatus,
  fields: Object.keys(DatabaseSpec.fields),
  immutable: ["region"],
  internal: ["credentialVersion", "lineage", "keptAs"],
  generated: ["password"],
  after: ["Environment"],
  singleton: true,
  deleteRole: "owner",
  reasons: {
    ServerStarting: "The server process was started and does not answer yet",
    ServerDown: "The server process is gone; it is started again",
    Recovering: "The server replays its log after a crash",
    Promoting: "The data of a branch takes the place of what was there",
    ArchivingFailing: "Finished log segments cannot be archived"
  },
  manifest: listSection("databases"),
  deadlineSeconds: 600
})
