/** Caches: Redis-compatible servers of an environment. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { CacheInput } from "#schemas/cache.ts"
import { CacheSku } from "#schemas/catalog.ts"
import { Name } from "#schemas/names.ts"
import {
  caCertificateUrl,
  Deleted,
  environmentQuery,
  Id,
  idempotencyKey,
  ifMatch,
  projectParams,
  ServiceStatus,
  Timestamp,
  withEtag
} from "./fields.ts"
import { group, operation } from "./operation.ts"
import { bodyProblems, problems } from "./problem.ts"

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

const base = "/v1/orgs/:orgId/projects/:projectId/caches"
const one = `${base}/:cacheId` as const
const params = { ...projectParams, cacheId: Id }
const cache = { type: "resource", param: "cacheId", kind: "Cache" } as const

const { region: _fixed, ...changeable } = CacheInput.fields

export const Caches = group("caches", "Redis-compatible servers of an environment.").add(
  HttpApiEndpoint.get("list", base, {
    params: projectParams,
    query: environmentQuery,
    success: CacheList,
    error: problems()
  }).annotateMerge(
    operation("caches.list", "read", "member", "List caches by name", { target: { type: "project" } })
  ),
  HttpApiEndpoint.post("create", base, {
    params: projectParams,
    query: environmentQuery,
    headers: idempotencyKey,
    payload: Schema.Struct({ name: Name, ...CacheInput.fields, sku: CacheSku }),
    success: CacheCredentials.pipe(HttpApiSchema.status(201)),
    error: bodyProblems(402)
  }).annotateMerge(
    operation("caches.create", "write", "admin", "Create a cache", {
      billing: true,
      target: { type: "environment" }
    })
  ),
  HttpApiEndpoint.get("get", one, {
    params,
    success: withEtag(CacheView),
    error: problems()
  }).annotateMerge(operation("caches.get", "read", "member", "Read a cache", { target: cache })),
  HttpApiEndpoint.patch("update", one, {
    params,
    headers: ifMatch,
    payload: Schema.Struct(changeable),
    success: withEtag(CacheView),
    error: bodyProblems(402, 412)
  }).annotateMerge(
    operation("caches.update", "write", "admin", "Change size, eviction or persistence of a cache", {
      billing: true,
      target: cache
    })
  ),
  HttpApiEndpoint.post("rotateCredentials", `${one}/credentials/rotate`, {
    params,
    headers: idempotencyKey,
    success: CacheCredentials,
    error: problems(402)
  }).annotateMerge(
    operation("caches.rotateCredentials", "write", "admin", "Replace the password of a cache", {
      sensitive: true,
      billing: true,
      target: cache
    })
  ),
  HttpApiEndpoint.delete("delete", one, {
    params,
    headers: ifMatch,
    success: Deleted,
    error: problems(412)
  }).annotateMerge(
    operation("caches.delete", "destructive", "owner", "Delete a cache and its data", {
      sensitive: true,
      target: cache
    })
  )
)
