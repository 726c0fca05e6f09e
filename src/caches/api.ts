/** Caches: Redis-compatible servers of an environment. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as Schema from "effect/Schema"
import { Cache, CacheInput } from "#schemas/cache.ts"
import { CacheSku } from "#schemas/catalog.ts"
import { Name } from "#schemas/names.ts"
import { caCertificateUrl, Id, idempotencyKey, ServiceStatus, Timestamp } from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { problems } from "#src/api/definition/problem.ts"
import { inEnvironment, resourceOperations } from "#src/api/definition/resource-group.ts"

export const CacheView = Schema.Struct({
  id: Id,
  name: Schema.String,
  environment: Schema.String,
  status: ServiceStatus,
  region: Schema.String,
  sku: Schema.String,
  memoryMb: Schema.Int,
  persistence: Schema.String,
  evictionPolicy: Schema.String,
  host: Schema.NullOr(Schema.String).annotate({ description: "null until the server was started once" }),
  port: Schema.NullOr(Schema.Int),
  tls: Schema.Boolean,
  createdAt: Timestamp
}).annotate({ identifier: "Cache" })

export const CacheList = Schema.Array(CacheView)

export const CacheCredentials = Schema.Struct({
  id: Id,
  name: Schema.String,
  status: ServiceStatus,
  connectionString: Schema.NullOr(Schema.String.annotate({ format: "uri" })).annotate({
    description:
      "`rediss://` URL with the password, shown this once; null when the server is not ready yet: rotate then"
  }),
  caCertificateUrl
}).annotate({ identifier: "CacheCredentials" })

const caches = resourceOperations({
  group: "caches",
  kind: Cache,
  parent: inEnvironment,
  segment: "caches",
  param: "cacheId",
  view: CacheView
})
const { one, params, target } = caches

const { region: _fixed, ...changeable } = CacheInput.fields

export const Caches = group("caches", "Redis-compatible servers of an environment.").add(
  caches.list(),
  caches.create({
    payload: Schema.Struct({ name: Name, ...CacheInput.fields, sku: CacheSku }),
    success: CacheCredentials
  }),
  caches.get(),
  caches.update({
    payload: Schema.Struct(changeable),
    summary: "Change size, eviction or persistence of a cache"
  }),
  HttpApiEndpoint.post("rotateCredentials", `${one}/credentials/rotate`, {
    params,
    headers: idempotencyKey,
    success: CacheCredentials,
    error: problems(402)
  }).annotateMerge(
    operation("caches.rotateCredentials", "write", "admin", "Replace the password of a cache", {
      sensitive: true,
      billing: true,
      target
    })
  ),
  caches.delete({ summary: "Delete a cache and its data" })
)
