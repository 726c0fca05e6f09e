/** Who may see the environments of a project at their addresses, and the addresses that are invited. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { AccessMode, AccessPolicyInput, PreviewMode } from "#schemas/access-policy.ts"
import { EnvironmentSlug } from "#schemas/names.ts"
import {
  Deleted,
  Id,
  idempotencyKey,
  ifMatch,
  projectParams,
  ServiceStatus,
  Timestamp
} from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"
import { Email } from "#src/organizations/api/invitations.ts"

export const AccessPolicyView = Schema.Struct({
  mode: AccessMode,
  previewMode: PreviewMode,
  environments: Schema.Record(EnvironmentSlug, AccessMode),
  effective: Schema.Record(Schema.String, AccessMode).annotate({
    description: "The mode of each environment by what is said above"
  }),
  status: Schema.NullOr(ServiceStatus).annotate({
    description: "`ready`: in force at every address; null: nothing was said, everybody may see everything"
  }),
  managedBy: Schema.NullOr(Schema.Literals(["api", "manifest"]))
}).annotate({ identifier: "AccessPolicy" })

export const AccessInvitationView = Schema.Struct({
  id: Id,
  email: Schema.String.annotate({ format: "email" }),
  createdAt: Timestamp
}).annotate({ identifier: "AccessInvitation" })
export const AccessInvitationList = Schema.Array(AccessInvitationView)

const base = "/v1/orgs/:orgId/projects/:projectId/access"
const invitations = `${base}/invitations` as const
const params = projectParams
const target = { type: "project" } as const
const tagged = { alsoAnswers: { headers: ["etag"] }, target }

export const Access = group(
  "access",
  "Who may see the environments of a project at their addresses, and who is invited."
).add(
  HttpApiEndpoint.get("get", base, { params, success: AccessPolicyView, error: problems() }).annotateMerge(
    operation(
      "access.get",
      "read",
      "member",
      "Who may see the environments of a project; with an ETag once anything was said",
      tagged
    )
  ),
  HttpApiEndpoint.put("set", base, {
    params,
    payload: Schema.Struct(AccessPolicyInput.fields),
    success: AccessPolicyView,
    error: bodyProblems(412)
  }).annotateMerge(
    operation("access.set", "write", "admin", "Say who may see the environments of a project", {
      sensitive: true,
      conditional: true,
      ...tagged
    })
  ),
  HttpApiEndpoint.delete("delete", base, {
    params,
    headers: ifMatch,
    success: Deleted,
    error: problems(412)
  }).annotateMerge(
    operation("access.delete", "destructive", "admin", "Let everybody see the environments of a project", {
      sensitive: true,
      target
    })
  ),
  HttpApiEndpoint.get("listInvitations", invitations, {
    params,
    success: AccessInvitationList,
    error: problems()
  }).annotateMerge(
    operation("access.listInvitations", "read", "member", "List the invited addresses of a project", {
      target
    })
  ),
  HttpApiEndpoint.post("invite", invitations, {
    params,
    headers: idempotencyKey,
    payload: Schema.Struct({ email: Email }),
    success: AccessInvitationView.pipe(HttpApiSchema.status(201)),
    error: bodyProblems()
  }).annotateMerge(
    operation(
      "access.invite",
      "write",
      "admin",
      "Let the account with an e-mail address see the environments that are `invite_only`; no mail is sent",
      { sensitive: true, target }
    )
  ),
  HttpApiEndpoint.delete("revokeInvitation", `${invitations}/:invitationId`, {
    params: { ...params, invitationId: Id },
    success: Deleted,
    error: problems()
  }).annotateMerge(
    operation("access.revokeInvitation", "destructive", "admin", "Take the invitation of an address back", {
      sensitive: true,
      target
    })
  )
)
