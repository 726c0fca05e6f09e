/** `Database`: a Postgres server of its own for one environment. */
import * as Schema from "effect/Schema"
import { BackupPolicy } from "./backup-policy.ts"
import { DatabaseSku, DatabaseSkuName, defaultDatabaseSku, Region } from "./catalog.ts"
import { progress, warning } from "./condition.ts"
import { inputOf, withDefault } from "./input.ts"
import { defineKind } from "./kind.ts"
import { listSection, usualEnvironment } from "./manifest-mapping.ts"

/** Name of a database that was provisioned without one. */
export const defaultDatabaseName = "main"

export const DatabaseSpec = Schema.Struct({
  sku: withDefault(DatabaseSku, defaultDatabaseSku),
  region: Region,
  /** Rises with every rotation; the password itself is sealed under the secret field `password`. */
  credentialVersion: withDefault(Schema.Int, 1),
  backup: withDefault(BackupPolicy, {}, "How long its backups are kept, and where besides this machine"),
  /** Their keys are made of the database's uid. */
  replicas: withDefault(
    Schema.Literals([0, 2]),
    0,
    "Standbys that follow it, can be read from and can take its place"
  ),
  /** Which history its data folder belongs to, under which backups are kept. Absent: its own, named by its uid. */
  lineage: Schema.optionalKey(Schema.String),
  /** The branch that gets the data folder that the one of `lineage` takes the place of. */
  keptAs: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "DatabaseSpec" })
export type DatabaseSpec = typeof DatabaseSpec.Type

const internal = ["credentialVersion", "lineage", "keptAs"] as const
/** What users may give of a database, besides its name. */
const DatabaseInput = inputOf(DatabaseSpec, internal)

/** A standby: a server of its own that can be read from. */
export const DatabaseReplica = Schema.Struct({
  number: Schema.Int,
  host: Schema.String,
  /** Null until it has one. */
  port: Schema.NullOr(Schema.Int),
  state: Schema.Literals(["copying", "catching_up", "streaming", "down"]),
  /** What of the primary's log it has not replayed, at most: 0 for less than 1 MiB, then 1, 2, 4 MiB and so on. Null: not known. */
  lagBytes: Schema.NullOr(Schema.Int),
  /** Age of the newest change that it has, at most: 0 for less than 10 or if it has all, then 10, 20, 40 and so on. Null: not known. */
  lagSeconds: Schema.NullOr(Schema.Int),
  /** Why it is not as it should be. */
  problem: Schema.NullOr(Schema.String)
}).annotate({ identifier: "DatabaseReplica" })
export type DatabaseReplica = typeof DatabaseReplica.Type

export const DatabaseFailover = Schema.Struct({
  at: Schema.String.annotate({ format: "date-time" }),
  /** Number of the standby whose data took the place of the primary's. */
  replica: Schema.Int,
  /** What it is known to have lacked when both were last seen, in the same steps. Null: not known. */
  lagBytes: Schema.NullOr(Schema.Int)
}).annotate({ identifier: "DatabaseFailover" })
export type DatabaseFailover = typeof DatabaseFailover.Type

export const DatabaseStatus = Schema.Struct({
  host: Schema.String,
  port: Schema.Int,
  dbName: Schema.String,
  user: Schema.String,
  /** Version of the server program, such as `PostgreSQL 18.4`. */
  server: Schema.String,
  certificateExpiresAt: Schema.String,
  /** Which history the data folder belongs to. */
  lineage: Schema.optionalKey(Schema.String),
  replicas: Schema.optionalKey(Schema.Array(DatabaseReplica)),
  /** The last time that a standby took the primary's place. */
  failover: Schema.optionalKey(DatabaseFailover),
  /**
   * Processes that the kernel ended for the memory limit, as far as that was told: of the primary (0) and of each standby,
   * by its number. Absent: none.
   */
  memoryKills: Schema.optionalKey(Schema.Record(Schema.String, Schema.Int))
}).annotate({ identifier: "DatabaseStatus" })
export type DatabaseStatus = typeof DatabaseStatus.Type

export const DatabaseFacts = Schema.Struct({
  /** The history that its data has reached. Absent: it never had data, and nothing is lost if there is none. */
  lineage: Schema.optionalKey(Schema.String),
  /** Postgres's own identifier of the data of that history, which copies of it share. */
  systemIdentifier: Schema.optionalKey(Schema.String)
})
export type DatabaseFacts = typeof DatabaseFacts.Type

export const Database = defineKind({
  name: "Database",
  summary: "A Postgres server of its own, with TLS and write-ahead log archiving.",
  scope: "environment",
  placement: "host",
  spec: DatabaseSpec,
  status: DatabaseStatus,
  facts: DatabaseFacts,
  fields: Object.keys(DatabaseSpec.fields),
  immutable: ["region"],
  internal,
  generated: ["password"],
  references: [
    {
      path: "/backup/destinationIds/*",
      kind: "BackupDestination",
      by: "uid",
      required: true
    }
  ],
  singleton: true,
  deleteRole: "owner",
  reasons: {
    ServerStarting: progress("The server process was started and does not answer yet"),
    ServerDown: warning("The server process is gone; it is started again"),
    NotAnswering: warning("The server process is there and does not answer; it is looked at again soon"),
    OutOfMemory: warning("The kernel ended a process of the server because its memory limit was reached"),
    Recovering: progress("The server replays its log after a crash"),
    Promoting: progress("The data of a branch takes the place of what was there"),
    ArchivingFailing: warning("Finished log segments cannot be archived"),
    ArchivingBehind: warning("Finished log segments wait too long to be archived; the database works"),
    DestinationFailing: warning("Backups do not reach a destination; they are kept on this machine"),
    ReplicaCopying: progress("A standby is being copied; the database works"),
    ReplicaDown: warning("A standby does not run or does not follow; the database works"),
    ReplicaFailing: warning("A standby cannot be brought to what it should be; the database works"),
    ReplicaLagging: warning("A standby is far behind; the database works"),
    DataLost: warning(
      "The data folder is gone and no standby has the data; a restore brings back what was backed up"
    ),
    WrongData: warning("The data folder holds the data of another server; nothing is done with it"),
    FailingOver: warning("The primary's data is lost or cannot be started; a standby takes its place"),
    FailedOver: warning("A standby has taken the place of the primary")
  },
  manifest: listSection("databases", "Postgres servers, at most one in each environment", {
    environment: usualEnvironment,
    ...DatabaseInput.fields,
    sku: DatabaseSkuName
  }),
  deadlineSeconds: 600
})
