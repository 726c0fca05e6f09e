/** API keys of an organization, for agents and CI. A key is shown once, and never manages keys, billing or members. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { DisplayName } from "#schemas/display-text.ts"
import { Id, idempotencyKey, orgParams, Timestamp } from "#src/api/definition/fields.ts"
import { group, operation, sessionOnly } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"

const KeyRole = Schema.Literals(["member", "admin"])

const handle = {
  id: Id,
  name: Schema.String,
  keyPrefix: Schema.String.annotate({ description: "First characters, to tell keys apart" }),
  role: KeyRole.annotate({
    description: "Highest role that it acts in; it never exceeds what its creator may do at the time"
  })
}
export const ApiKeyView = Schema.Struct({
  ...handle,
  lastUsedAt: Schema.NullOr(Timestamp),
  revokedAt: Schema.NullOr(Timestamp),
  createdAt: Timestamp
}).annotate({ identifier: "ApiKey" })
export const ApiKeyList = Schema.Array(ApiKeyView)

export const NewApiKey = Schema.Struct({
  ...handle,
  key: Schema.String.annotate({ description: "The secret, shown this once" })
}).annotate({ identifier: "NewApiKey" })

const base = "/v1/orgs/:orgId/api-keys"

export const ApiKeys = group("apikeys", "API keys of an organization, for agents and CI.").add(
  HttpApiEndpoint.get("list", base, {
    params: orgParams,
    success: ApiKeyList,
    error: problems()
  }).annotateMerge(
    operation("apikeys.list", "read", "admin", "List API keys, revoked ones too, oldest first", {
      credentials: sessionOnly
    })
  ),
  HttpApiEndpoint.post("create", base, {
    params: orgParams,
    headers: idempotencyKey,
    payload: Schema.Struct({
      name: DisplayName,
      role: Schema.optionalKey(KeyRole.annotate({ description: "Default admin; no key is an owner" }))
    }),
    success: NewApiKey.pipe(HttpApiSchema.status(201)),
    error: bodyProblems()
  }).annotateMerge(
    operation("apikeys.create", "write", "admin", "Create an API key", {
      sensitive: true,
      credentials: sessionOnly
    })
  ),
  HttpApiEndpoint.delete("revoke", `${base}/:keyId`, {
    params: { ...orgParams, keyId: Id },
    success: Schema.Struct({ revokedAt: Timestamp }),
    error: problems()
  }).annotateMerge(
    operation("apikeys.revoke", "write", "admin", "Revoke an API key; it opens nothing from then on", {
      sensitive: true,
      credentials: sessionOnly,
      target: { type: "record", param: "keyId", table: "api_key" }
    })
  )
)
