/** Organizations. Billing, projects and people belong to them, never to a single user. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { DisplayName } from "#schemas/display-text.ts"
import { looksLikeUid, OrganizationSlug, reservedSlugs } from "#schemas/names.ts"
import {
  Deleted,
  Id,
  idempotencyKey,
  ifMatch,
  orgParams,
  Timestamp,
  withEtag
} from "#src/api/definition/fields.ts"
import { callerOperation, group, operation, sessionOnly } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"

export const BillingStatus = Schema.Literals(["unpaid", "active", "past_due", "canceled"])

export const OrganizationView = Schema.Struct({
  id: Id,
  name: Schema.String,
  slug: Schema.String,
  isPersonal: Schema.Boolean.annotate({ description: "Made with its owner's account; never deleted" }),
  billingStatus: BillingStatus,
  createdAt: Timestamp
}).annotate({ identifier: "Organization" })
export const OrganizationList = Schema.Array(OrganizationView)

/** Where a path takes an id or a slug, no slug may read as an id. */
const NewSlug = OrganizationSlug.check(
  Schema.makeFilter((slug: string) =>
    reservedSlugs.has(slug) ? `"${slug}" is reserved; choose another slug` : undefined
  ),
  Schema.makeFilter((slug: string) =>
    looksLikeUid(slug) ? "looks like an id; choose another slug" : undefined
  )
)

const base = "/v1/orgs"
const one = `${base}/:orgId` as const

export const Orgs = group("orgs", "Organizations, to which billing, projects and people belong.").add(
  HttpApiEndpoint.get("list", base, {
    success: OrganizationList,
    error: problems()
  }).annotateMerge(
    callerOperation("orgs.list", "List the organizations that you belong to, by slug", {
      role: "member",
      credentials: sessionOnly
    })
  ),
  HttpApiEndpoint.post("create", base, {
    headers: idempotencyKey,
    payload: Schema.Struct({ name: DisplayName, slug: NewSlug }),
    success: OrganizationView.pipe(HttpApiSchema.status(201)),
    error: bodyProblems()
  }).annotateMerge(
    callerOperation("orgs.create", "Create a team organization that you own", {
      risk: "write",
      role: "member",
      credentials: sessionOnly
    })
  ),
  HttpApiEndpoint.get("get", one, {
    params: orgParams,
    success: withEtag(OrganizationView),
    error: problems()
  }).annotateMerge(operation("orgs.get", "read", "member", "Read an organization")),
  HttpApiEndpoint.patch("update", one, {
    params: orgParams,
    headers: ifMatch,
    payload: Schema.Struct({
      name: Schema.optionalKey(DisplayName),
      slug: Schema.optionalKey(NewSlug)
    }),
    success: withEtag(OrganizationView),
    error: bodyProblems(412)
  }).annotateMerge(
    operation(
      "orgs.update",
      "write",
      "admin",
      "Rename an organization; an earlier slug stays reserved for it",
      {
        credentials: sessionOnly
      }
    )
  ),
  HttpApiEndpoint.delete("delete", one, {
    params: orgParams,
    headers: ifMatch,
    success: Deleted,
    error: problems(412)
  }).annotateMerge(
    operation(
      "orgs.delete",
      "destructive",
      "owner",
      "Delete an organization and everything in it. Nobody sees it from then on; what it has is removed after the answer",
      { sensitive: true, credentials: sessionOnly }
    )
  )
)
