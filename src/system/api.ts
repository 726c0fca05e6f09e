/** About the service and about the caller. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { Id, Timestamp, withEtag } from "#src/api/definition/fields.ts"
import { callerOperation, group, publicOperation } from "#src/api/definition/operation.ts"
import { anyProblems, problems } from "#src/api/definition/problem.ts"

export const System = group("system", "About the service.").add(
  HttpApiEndpoint.get("health", "/v1/health", {
    success: Schema.Struct({ ok: Schema.Boolean, service: Schema.String }),
    error: anyProblems
  }).annotateMerge(publicOperation("system.health", "Whether the service answers and reaches its store")),
  HttpApiEndpoint.get("spec", "/v1/spec", {
    success: Schema.Json.annotate({ description: "OpenAPI 3.1 document" }),
    error: anyProblems
  }).annotateMerge(publicOperation("system.spec", "Describe every operation")),
  HttpApiEndpoint.get("manifestSchema", "/v1/manifest.schema.json", {
    success: withEtag(
      Schema.Json.annotate({ description: "JSON Schema (2020-12) of the manifest" }).pipe(
        HttpApiSchema.asJson({ contentType: "application/schema+json" })
      )
    ),
    error: anyProblems
  }).annotateMerge(publicOperation("system.manifestSchema", "Describe the manifest, for editors")),
  HttpApiEndpoint.get("caCertificate", "/v1/ca.pem", {
    success: Schema.String.pipe(HttpApiSchema.asText({ contentType: "application/x-pem-file" })),
    error: anyProblems
  }).annotateMerge(
    publicOperation(
      "system.caCertificate",
      "Certificate of the authority that signs the certificates of managed servers"
    )
  )
)

export const CallerView = Schema.Struct({
  credential: Schema.Literals(["session", "key", "grant"]),
  credentialId: Schema.String,
  /** The name that the key was given; null for a session. */
  keyName: Schema.NullOr(Schema.String),
  /** Null for what is no agent's. The role is with the organization. */
  grant: Schema.NullOr(
    Schema.Struct({
      clientId: Schema.String,
      clientName: Schema.String,
      audience: Schema.Literals(["api", "mcp"]),
      scopes: Schema.Array(Schema.String).annotate({ description: "Ids of the operations that it may call" }),
      expiresAt: Timestamp.annotate({ description: "It ends then, unless its tokens are refreshed before" })
    })
  ),
  userId: Schema.NullOr(Id),
  /** Whose session it is, who made the key or let the agent in; null where that account is gone. */
  user: Schema.NullOr(Schema.Struct({ id: Id, email: Schema.String, name: Schema.String })),
  organizations: Schema.Array(
    Schema.Struct({ id: Id, slug: Schema.String, name: Schema.String, role: Schema.String })
  )
}).annotate({ identifier: "Caller" })

export const Me = group("me", "About the caller.").add(
  HttpApiEndpoint.get("get", "/v1/me", { success: CallerView, error: problems() }).annotateMerge(
    callerOperation("me.get", "Who the credential belongs to and what it may do where")
  )
)
