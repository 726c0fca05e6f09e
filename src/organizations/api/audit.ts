/** Who did what, and who was refused what. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as Schema from "effect/Schema"
import { orgParams, page, pageQuery, Timestamp } from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { problems } from "#src/api/definition/problem.ts"

export const AuditRecord = Schema.Struct({
  id: Schema.String,
  at: Timestamp,
  principal: Schema.String.annotate({
    description: "`user:<id>`, `key:<id>`, `grant:<id>`, `operator`, `system` or `anonymous`"
  }),
  credential: Schema.String,
  agent: Schema.NullOr(
    Schema.Struct({
      userId: Schema.String.annotate({ description: "Who let it in" }),
      clientId: Schema.String,
      clientName: Schema.String.annotate({ description: "As the client calls itself" })
    })
  ).annotate({ description: "Of a grant: for whom which agent acted" }),
  operation: Schema.String,
  resource: Schema.NullOr(Schema.String).annotate({ description: "Id of what it was done to" }),
  requestId: Schema.String,
  address: Schema.NullOr(Schema.String),
  outcome: Schema.Int.annotate({ description: "HTTP status of the answer" })
}).annotate({ identifier: "AuditRecord" })
export const AuditPage = page(AuditRecord)

const filter = Schema.optionalKey(Schema.String.check(Schema.isMaxLength(128)))

export const AuditLog = group("audit", "Who did what, and who was refused what.").add(
  HttpApiEndpoint.get("list", "/v1/orgs/:orgId/audit", {
    params: orgParams,
    query: { ...pageQuery, principal: filter, operation: filter, resource: filter },
    success: AuditPage,
    error: problems()
  }).annotateMerge(
    operation(
      "audit.list",
      "read",
      "admin",
      "Read the audit log, newest first: every write and every refusal"
    )
  )
)
