/** The database of an environment: one Postgres server each. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { Region } from "#schemas/catalog.ts"
import { DatabaseFailover, DatabaseReplica } from "#schemas/database.ts"
import {
  caCertificateUrl,
  Deleted,
  environmentQuery,
  Id,
  idempotencyKey,
  ifMatch,
  projectParams,
  ServiceStatus,
  withEtag
} from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"

export const DatabaseView = Schema.Struct({
  id: Id,
  status: ServiceStatus,
  region: Schema.String,
  host: Schema.NullOr(Schema.String).annotate({ description: "null until the server was started once" }),
  port: Schema.NullOr(Schema.Int),
  dbName: Schema.NullOr(Schema.String),
  user: Schema.NullOr(Schema.String),
  replicas: Schema.Array(DatabaseReplica).annotate({
    description: "Standbys that can be read from with the same user and password"
  }),
  failover: Schema.NullOr(DatabaseFailover).annotate({
    description: "The last time that a standby took the primary's place"
  })
}).annotate({ identifier: "Database" })

const connectionString = Schema.NullOr(Schema.String.annotate({ format: "uri" })).annotate({
  description:
    "`postgres://` URL with the password, shown this once; null when the server is not ready yet: rotate then"
})
const DatabaseProvisioned = Schema.Struct({
  status: ServiceStatus,
  connectionString,
  caCertificateUrl
}).annotate({ identifier: "DatabaseProvisioned" })
export const DatabaseCredentials = Schema.Struct({ connectionString, caCertificateUrl }).annotate({
  identifier: "DatabaseCredentials"
})

const base = "/v1/orgs/:orgId/projects/:projectId/database"
const place = { params: projectParams, query: environmentQuery } as const
const target = { type: "environment" } as const

export const Database = group("database", "The Postgres server of an environment.").add(
  HttpApiEndpoint.get("get", base, {
    ...place,
    success: withEtag(DatabaseView),
    error: problems()
  }).annotateMerge(
    operation("database.get", "read", "member", "Read the database of an environment", { target })
  ),
  HttpApiEndpoint.post("provision", base, {
    ...place,
    headers: idempotencyKey,
    // In the other order a client sends nothing at all.
    payload: [Schema.Struct({ region: Schema.optionalKey(Region) }), HttpApiSchema.NoContent],
    success: DatabaseProvisioned.pipe(HttpApiSchema.status(201)),
    error: bodyProblems(402)
  }).annotateMerge(
    operation("database.provision", "write", "admin", "Provision the database of an environment", {
      billing: true,
      target
    })
  ),
  HttpApiEndpoint.post("rotatePassword", `${base}/rotate`, {
    ...place,
    headers: idempotencyKey,
    success: DatabaseCredentials,
    error: problems()
  }).annotateMerge(
    operation("database.rotatePassword", "write", "admin", "Replace the password of the database", {
      sensitive: true,
      target
    })
  ),
  HttpApiEndpoint.delete("delete", base, {
    ...place,
    headers: ifMatch,
    success: Deleted,
    error: problems(412)
  }).annotateMerge(
    operation("database.delete", "destructive", "owner", "Delete the database and its data", {
      sensitive: true,
      target
    })
  )
)
