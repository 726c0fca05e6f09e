/** The manifest: the whole desired state of an organization as one document. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { Difference } from "#schemas/difference.ts"
import { Manifest as ManifestDocument } from "#schemas/manifest.ts"
import { Uid } from "#schemas/names.ts"
import { Id, idempotencyKey, orgParams, Timestamp } from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"

const PatchOperation = Schema.Struct({
  op: Schema.Literals(["add", "remove", "replace", "move", "copy", "test"]),
  path: Schema.String,
  from: Schema.optionalKey(Schema.String),
  value: Schema.optionalKey(Schema.Json)
}).annotate({ identifier: "PatchOperation", description: "RFC 6902; secret values are masked" })

const PlannedChange = Schema.Struct({
  address: Schema.String,
  kind: Schema.String,
  project: Schema.String,
  environment: Schema.NullOr(Schema.String),
  name: Schema.String,
  action: Schema.Literals(["create", "update", "replace", "delete", "noop"]),
  risk: Schema.Literals(["read", "write", "destructive", "dangerous"]),
  patch: Schema.Array(PatchOperation),
  reasons: Schema.Array(Schema.Struct({ code: Schema.String, message: Schema.String })),
  requires: Schema.Struct({ role: Schema.Literals(["member", "admin", "owner"]), billing: Schema.Boolean })
}).annotate({ identifier: "PlannedChange" })

const Located = {
  pointer: Schema.String,
  message: Schema.String,
  line: Schema.optionalKey(Schema.Int),
  column: Schema.optionalKey(Schema.Int)
}

const planFields = {
  planId: Id,
  organization: Schema.String,
  baseRevision: Schema.String,
  createdAt: Timestamp,
  expiresAt: Timestamp,
  summary: Schema.Struct({
    create: Schema.Int,
    update: Schema.Int,
    replace: Schema.Int,
    delete: Schema.Int,
    noop: Schema.Int,
    drift: Schema.Int
  }),
  changes: Schema.Array(PlannedChange),
  drift: Schema.Array(
    Schema.Struct({
      address: Schema.String,
      differences: Schema.Array(Difference),
      observedAt: Schema.NullOr(Timestamp)
    })
  ),
  blockers: Schema.Array(Schema.Struct({ ...Located, code: Schema.String })),
  warnings: Schema.Array(Schema.Struct(Located))
}
export const PlanView = Schema.Struct(planFields).annotate({ identifier: "Plan" })

export const SavedPlanView = Schema.Struct({
  ...planFields,
  appliedAt: Schema.NullOr(Timestamp),
  moved: Schema.Array(Schema.String).annotate({
    description:
      "Addresses of what has changed since the plan was made: while there is any, it cannot be applied"
  })
}).annotate({ identifier: "SavedPlan" })

const Applied = Schema.Struct({
  changes: Schema.Array(PlannedChange),
  revision: Schema.String.annotate({ description: "Position in the change feed to watch from" }),
  resources: Schema.Array(
    Schema.Struct({ uid: Id, address: Schema.String, generation: Schema.Int })
  ).annotate({ description: "What was written; each has converged when its observedGeneration reaches this" })
}).annotate({ identifier: "Applied" })

const options = {
  prune: Schema.optionalKey(
    Schema.Boolean.annotate({ description: "Delete what a present list no longer names" })
  ),
  confirm: Schema.optionalKey(
    Schema.Array(Schema.String).annotate({ description: "Names of projects whose mass deletion is meant" })
  )
}

export { ManifestDocument }

/** The body of `manifest.apply`. Its handler reads the document apart. */
export const applyRequest = <Document extends Schema.Top>(manifest: Document) =>
  Schema.Union([Schema.Struct({ planId: Uid }), Schema.Struct({ manifest, ...options })])
export const ApplyRequest = applyRequest(ManifestDocument).annotate({ identifier: "ApplyRequest" })

/** Text that holds what one of the specification's schemas describes. */
const holding = (name: "ManifestDocument" | "ApplyRequest") =>
  Schema.String.annotate({ contentSchema: { $ref: `#/components/schemas/${name}` } })
/** The source itself, so that faults can name line and column. YAML takes JSON as well, so clients may send either. */
const source = (name: "ManifestDocument" | "ApplyRequest") =>
  [
    holding(name).pipe(HttpApiSchema.asText({ contentType: "application/yaml" })),
    holding(name).pipe(HttpApiSchema.asText({ contentType: "application/json" }))
  ] as const

/** Bytes: a manifest of ten thousand resources fits, and reading it stays a matter of a second. */
const longestBody = 4 * 1024 * 1024

const base = "/v1/orgs/:orgId/manifest"

export const Manifest = group(
  "manifest",
  "The whole desired state of an organization as one document: export, plan and apply."
).add(
  HttpApiEndpoint.get("get", base, {
    params: orgParams,
    success: [
      Schema.Json.annotate({
        description: "The manifest document",
        contentSchema: { $ref: "#/components/schemas/ManifestDocument" }
      }),
      holding("ManifestDocument").pipe(HttpApiSchema.asText({ contentType: "application/yaml" }))
    ],
    error: problems()
  }).annotateMerge(
    operation(
      "manifest.get",
      "read",
      "admin",
      "Export the current state as a manifest (YAML if the Accept header asks for it)"
    )
  ),
  HttpApiEndpoint.post("plan", `${base}/plan`, {
    params: orgParams,
    query: options,
    headers: idempotencyKey,
    payload: source("ManifestDocument"),
    success: PlanView,
    error: bodyProblems()
  }).annotateMerge(
    operation(
      "manifest.plan",
      "write",
      "admin",
      "Say what applying a manifest would change, and change nothing",
      {
        longestBody
      }
    )
  ),
  HttpApiEndpoint.get("getPlan", `${base}/plans/:planId`, {
    params: { ...orgParams, planId: Uid },
    success: SavedPlanView,
    error: problems()
  }).annotateMerge(
    operation(
      "manifest.getPlan",
      "read",
      "admin",
      "Show a plan as it was made, and whether it can be applied still"
    )
  ),
  HttpApiEndpoint.post("apply", `${base}/apply`, {
    params: orgParams,
    headers: idempotencyKey,
    payload: source("ApplyRequest"),
    success: Applied.pipe(HttpApiSchema.status(202)),
    error: bodyProblems(402)
  }).annotateMerge(
    operation(
      "manifest.apply",
      "destructive",
      "admin",
      "Apply a stored plan, or a manifest: create, change and delete what it says",
      {
        sensitive: true,
        billing: true,
        longestBody
      }
    )
  )
)
