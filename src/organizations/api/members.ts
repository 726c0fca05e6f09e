/** Who belongs to an organization, in which role. Only owners make or unmake owners, and one always stays. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as Schema from "effect/Schema"
import { Deleted, Id, orgParams, Timestamp } from "#src/api/definition/fields.ts"
import { group, operation, sessionOnly } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"

export const Role = Schema.Literals(["owner", "admin", "member"])

export const MemberView = Schema.Struct({
  id: Id,
  userId: Id,
  email: Schema.String.annotate({ format: "email" }),
  name: Schema.String,
  role: Role,
  createdAt: Timestamp
}).annotate({ identifier: "Member" })
export const MemberList = Schema.Array(MemberView)

const base = "/v1/orgs/:orgId/members"
const one = `${base}/:memberId` as const
const params = { ...orgParams, memberId: Id }
const target = { type: "record", param: "memberId", table: "member" } as const

export const Members = group("members", "Who belongs to an organization, in which role.").add(
  HttpApiEndpoint.get("list", base, {
    params: orgParams,
    success: MemberList,
    error: problems()
  }).annotateMerge(
    operation("orgs.listMembers", "read", "member", "List members, in the order in which they joined", {
      credentials: sessionOnly
    })
  ),
  HttpApiEndpoint.patch("update", one, {
    params,
    payload: Schema.Struct({ role: Role }),
    success: MemberView,
    error: bodyProblems()
  }).annotateMerge(
    operation("orgs.updateMemberRole", "write", "admin", "Change the role of a member", {
      credentials: sessionOnly,
      target
    })
  ),
  HttpApiEndpoint.delete("remove", one, {
    params,
    success: Deleted,
    error: problems()
  }).annotateMerge(
    operation(
      "orgs.removeMember",
      "destructive",
      "admin",
      "Remove a member; the keys, grants and open invitations that the member made end with that",
      { credentials: sessionOnly, target }
    )
  )
)
