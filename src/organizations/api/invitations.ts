/** Inviting people by e-mail. The token that accepts an invitation exists in the mail only. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { Deleted, Id, idempotencyKey, orgParams, Timestamp } from "#src/api/definition/fields.ts"
import { callerOperation, group, operation, sessionOnly } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"
import { Role } from "./members.ts"

export const InvitationView = Schema.Struct({
  id: Id,
  email: Schema.String.annotate({ format: "email" }),
  role: Role,
  status: Schema.Literals(["pending", "accepted", "revoked", "expired"]),
  expiresAt: Timestamp
}).annotate({ identifier: "Invitation" })
export const InvitationList = Schema.Array(InvitationView)

/** One address, as it may stand after "To:"; whether it exists only a mail can tell. */
export const Email = Schema.String.check(
  Schema.isMaxLength(254),
  Schema.isPattern(
    /^[^\s@"(),:;<>[\]\\\p{Cc}\p{Cf}]{1,64}@(?=.{1,253}$)[\p{L}\p{N}](?:[\p{L}\p{N}-]*[\p{L}\p{N}])?(?:\.[\p{L}\p{N}](?:[\p{L}\p{N}-]*[\p{L}\p{N}])?)+$/u,
    { expected: "an e-mail address" }
  )
).annotate({ format: "email" })

const base = "/v1/orgs/:orgId/invitations"
const target = { type: "record", param: "invitationId", table: "invitation" } as const

export const Invitations = group("invitations", "Inviting people to an organization by e-mail.").add(
  HttpApiEndpoint.get("list", base, {
    params: orgParams,
    success: InvitationList,
    error: problems()
  }).annotateMerge(
    operation("orgs.listInvitations", "read", "member", "List pending invitations, oldest first", {
      credentials: sessionOnly
    })
  ),
  HttpApiEndpoint.post("create", base, {
    params: orgParams,
    headers: idempotencyKey,
    payload: Schema.Struct({ email: Email, role: Schema.Literals(["admin", "member"]) }),
    success: InvitationView.pipe(HttpApiSchema.status(201)),
    error: bodyProblems()
  }).annotateMerge(
    operation(
      "orgs.createInvitation",
      "write",
      "admin",
      "Invite somebody by e-mail for seven days; inviting the same address again replaces the open invitation",
      { credentials: sessionOnly }
    )
  ),
  HttpApiEndpoint.delete("revoke", `${base}/:invitationId`, {
    params: { ...orgParams, invitationId: Id },
    success: Deleted,
    error: problems()
  }).annotateMerge(
    operation("orgs.revokeInvitation", "destructive", "admin", "Take an invitation back", {
      credentials: sessionOnly,
      target
    })
  ),
  HttpApiEndpoint.post("accept", "/v1/invitations/:token/accept", {
    params: { token: Schema.String },
    headers: idempotencyKey,
    success: Schema.Struct({
      organization: Schema.Struct({ id: Id, name: Schema.String, slug: Schema.String }),
      role: Role
    }).annotate({ identifier: "AcceptedInvitation" }),
    error: problems()
  }).annotateMerge(
    callerOperation("invitations.accept", "Join the organization that an invitation is for", {
      risk: "write",
      credentials: sessionOnly
    })
  )
)
