/** Custom domains of a project's environments. */

import * as Context from "effect/Context"
import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { Domain, DomainInput, Hostname } from "#schemas/domain.ts"
import { defaultEnvironment, EnvironmentSlug } from "#schemas/names.ts"
import { Deleted, Id, idempotencyKey, ifMatch, Timestamp } from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"
import { inProject, OperationOfKind, resourceOperations } from "#src/api/definition/resource-group.ts"

export const DomainView = Schema.Struct({
  id: Id,
  hostname: Schema.String,
  displayName: Schema.String.annotate({
    description: "The host name as people read it; another form only where it is internationalized"
  }),
  environment: Schema.String,
  status: Schema.Literals(["pending_dns", "pending_ssl", "active", "failed"]),
  verificationErrors: Schema.NullOr(Schema.String).annotate({
    description: "What is wrong or still to be done, in sentences for people"
  }),
  instructions: Schema.String.annotate({ description: "The DNS records to create" }),
  redirectTo: Schema.NullOr(Schema.String).annotate({
    description: "The domain that requests are sent on to; null: they are answered"
  }),
  hstsSeconds: Schema.Int.annotate({ description: "Of Strict-Transport-Security; 0: it is not sent" }),
  certificateExpiresAt: Schema.NullOr(Timestamp),
  createdAt: Timestamp
}).annotate({ identifier: "Domain" })
export const DomainList = Schema.Array(DomainView)

const domains = resourceOperations({
  group: "domains",
  kind: Domain,
  noun: "custom domain",
  parent: inProject,
  segment: "domains",
  param: "domainId",
  view: DomainView
})
const { all, one, params, target } = domains

export const Domains = group("domains", "Custom domains: host names of your own for an environment.").add(
  domains.list({ summary: "List the custom domains of all environments of a project, oldest first" }),
  HttpApiEndpoint.post("add", all, {
    params: inProject.params,
    headers: idempotencyKey,
    payload: Schema.Struct({
      hostname: Hostname,
      environment: Schema.optionalKey(EnvironmentSlug).annotateKey({
        description: "Slug of the environment that answers; not `preview`",
        default: defaultEnvironment
      }),
      ...DomainInput.fields
    }),
    success: DomainView.pipe(HttpApiSchema.status(201)),
    error: bodyProblems(402, 502)
  }).annotateMerge(
    operation(
      "domains.add",
      "write",
      "admin",
      "Add a custom domain; the answer says which DNS records to create",
      {
        billing: true,
        target: inProject.creates
      }
    ).pipe(Context.add(OperationOfKind, Domain.name))
  ),
  domains.get(),
  domains.update({
    payload: Schema.Struct({
      redirectTo: Schema.optionalKey(Schema.NullOr(Hostname)).annotateKey({
        description: "null: requests are answered"
      }),
      hstsSeconds: DomainInput.fields.hstsSeconds
    }),
    summary: "Change the options of a custom domain"
  }),
  HttpApiEndpoint.post("check", `${one}/check`, {
    params,
    success: DomainView,
    error: problems(502)
  }).annotateMerge(
    operation("domains.check", "write", "member", "Look at a custom domain now instead of at its next turn", {
      target
    })
  ),
  HttpApiEndpoint.delete("remove", one, {
    params,
    headers: ifMatch,
    success: Deleted,
    error: problems(412, 502)
  }).annotateMerge(
    operation("domains.remove", "destructive", Domain.deleteRole, "Remove a custom domain", {
      sensitive: true,
      target
    }).pipe(Context.add(OperationOfKind, Domain.name))
  )
)
