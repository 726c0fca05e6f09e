/** What people granted to agents: the command line, MCP clients. Members see and revoke their own, admins all. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as Schema from "effect/Schema"
import { Id, orgParams, Timestamp } from "#src/api/definition/fields.ts"
import { group, operation, sessionOnly } from "#src/api/definition/operation.ts"
import { problems } from "#src/api/definition/problem.ts"

export const AgentGrantView = Schema.Struct({
  grantId: Id,
  userId: Id.annotate({ description: "Who granted it" }),
  userEmail: Schema.NullOr(Schema.String).annotate({ description: "null: no member any more" }),
  clientId: Schema.String,
  clientName: Schema.String.annotate({ description: "As the client calls itself" }),
  audience: Schema.String.annotate({ description: "`api` or `mcp`: where its tokens are taken" }),
  role: Schema.Literals(["member", "admin"]),
  scopes: Schema.Array(Schema.String).annotate({ description: "Ids of the operations that it covers" }),
  createdAt: Timestamp,
  lastUsedAt: Schema.NullOr(Timestamp),
  expiresAt: Timestamp.annotate({ description: "It ends then, unless its tokens are refreshed before" }),
  revokedAt: Schema.NullOr(Timestamp)
}).annotate({ identifier: "AgentGrant" })
export const AgentGrantList = Schema.Array(AgentGrantView)

const base = "/v1/orgs/:orgId/agent-grants"

export const AgentGrants = group(
  "agentGrants",
  "What people granted to agents, such as the command line and MCP clients."
).add(
  HttpApiEndpoint.get("list", base, {
    params: orgParams,
    success: AgentGrantList,
    error: problems()
  }).annotateMerge(
    operation(
      "agentGrants.list",
      "read",
      "member",
      "List your grants, and those that ended within 30 days; admins see everybody's",
      {
        credentials: sessionOnly
      }
    )
  ),
  HttpApiEndpoint.delete("revoke", `${base}/:grantId`, {
    params: { ...orgParams, grantId: Id },
    success: Schema.Struct({ revokedAt: Timestamp }),
    error: problems()
  }).annotateMerge(
    operation(
      "agentGrants.revoke",
      "destructive",
      "member",
      "Revoke a grant of yours; admins revoke anybody's",
      {
        credentials: sessionOnly,
        target: { type: "record", param: "grantId", table: "agent_grant" }
      }
    )
  )
)
