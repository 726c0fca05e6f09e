/** Object storage of an organization's own, where copies of backups are kept. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as Schema from "effect/Schema"
import {
  BackupDestination,
  BucketName,
  DestinationEndpoint,
  DestinationPrefix,
  DestinationRegion
} from "#schemas/backup-destination.ts"
import { Name } from "#schemas/names.ts"
import { Id, idempotencyKey, Timestamp } from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { problems } from "#src/api/definition/problem.ts"
import { inOrganization, resourceOperations } from "#src/api/definition/resource-group.ts"
import { PlaceFault } from "../repository/place-fault.ts"

export const BackupDestinationView = Schema.Struct({
  id: Id,
  name: Schema.String,
  kind: Schema.Literal("custom_object_storage"),
  endpoint: Schema.String.annotate({ format: "uri" }),
  bucket: Schema.String,
  prefix: Schema.String,
  region: Schema.NullOr(Schema.String),
  version: Schema.Int.annotate({
    description:
      "Of the configuration in force; what was put somewhere stays with the version that put it there"
  }),
  status: Schema.Literals(["pending", "ready", "failed"]),
  lastTestedAt: Schema.NullOr(Timestamp),
  fault: Schema.NullOr(
    Schema.Struct({ code: PlaceFault, message: Schema.String }).annotate({
      description: "What was wrong in the last test; null when nothing was"
    })
  ),
  createdAt: Timestamp,
  updatedAt: Timestamp
}).annotate({ identifier: "BackupDestination" })
export const BackupDestinationList = Schema.Array(BackupDestinationView)

export const AccessTest = Schema.Struct({ ok: Schema.Boolean, testedAt: Timestamp }).annotate({
  identifier: "BackupDestinationTest"
})

const secret = (most: number) =>
  Schema.String.check(
    Schema.isPattern(/^[\x21-\x7e]+$/u, { expected: "printable characters without spaces" }),
    Schema.isMaxLength(most)
  )
const Credentials = Schema.Struct({
  accessKeyId: secret(200),
  secretAccessKey: secret(500),
  sessionToken: Schema.optionalKey(secret(4_000))
}).annotate({ description: "Stored encrypted and never returned" })

const region = Schema.NullOr(DestinationRegion).annotate({
  description: "null where the service has none; us-east-1 then signs the requests"
})

const destinations = resourceOperations({
  group: "backupDestinations",
  kind: BackupDestination,
  parent: inOrganization,
  segment: "backup-destinations",
  param: "destinationId",
  view: BackupDestinationView
})
const { one, params, target } = destinations

export const BackupDestinations = group(
  "backupDestinations",
  "Object storage of an organization's own, where copies of backups are kept."
).add(
  destinations.list(),
  destinations.create({
    payload: Schema.Struct({
      name: Name,
      endpoint: DestinationEndpoint,
      bucket: BucketName,
      prefix: Schema.optionalKey(DestinationPrefix),
      region: Schema.optionalKey(region),
      credentials: Credentials
    }),
    success: BackupDestinationView,
    sensitive: true,
    summary: "Create a backup destination, after writing, reading and deleting a test object there"
  }),
  destinations.get(),
  destinations.update({
    payload: Schema.Struct({
      name: Schema.optionalKey(Name),
      endpoint: Schema.optionalKey(DestinationEndpoint),
      bucket: Schema.optionalKey(BucketName),
      prefix: Schema.optionalKey(DestinationPrefix),
      region: Schema.optionalKey(region),
      credentials: Schema.optionalKey(Credentials)
    }),
    sensitive: true,
    summary: "Change a backup destination; a new version of it is tested and then in force"
  }),
  destinations.delete({
    summary: "Delete a backup destination that nothing uses; what is stored there stays"
  }),
  HttpApiEndpoint.post("test", `${one}/test`, {
    params,
    headers: idempotencyKey,
    success: AccessTest,
    error: problems()
  }).annotateMerge(
    operation(
      "backupDestinations.test",
      "write",
      "admin",
      "Write, read and delete a temporary object at a backup destination",
      { sensitive: true, target }
    )
  )
)
