/** Projects and their environments. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as Schema from "effect/Schema"
import { BudgetInput } from "#schemas/budget.ts"
import { Region } from "#schemas/catalog.ts"
import { DisplayName } from "#schemas/display-text.ts"
import { Environment, Origin } from "#schemas/environment.ts"
import { EnvironmentSlug, looksLikeUid, Name, reservedSlugs } from "#schemas/names.ts"
import { GitSource, PreviewData, Project, ProjectSpec, RuntimeClass } from "#schemas/project.ts"
import {
  Deleted,
  Id,
  idempotencyKey,
  ifMatch,
  projectParams,
  Timestamp,
  withEtag
} from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"
import { inOrganization, inProject, resourceOperations } from "#src/api/definition/resource-group.ts"
import { RequestPage, requestQuery } from "#src/edge/requests/view.ts"

export const ProjectView = Schema.Struct({
  id: Id,
  name: Schema.String,
  slug: Schema.String,
  runtimeClass: RuntimeClass,
  region: Schema.NullOr(Schema.String),
  git: Schema.NullOr(GitSource),
  previewData: PreviewData,
  createdAt: Timestamp,
  updatedAt: Timestamp
}).annotate({ identifier: "Project" })

/** Where a path takes an id or a slug, no slug may read as an id. */
const notAnId = Schema.makeFilter((slug: string) =>
  looksLikeUid(slug) ? "looks like an id; choose another slug" : undefined
)
const NewProjectSlug = Name.check(
  Schema.makeFilter((slug: string) =>
    reservedSlugs.has(slug) ? `"${slug}" is reserved; choose another slug` : undefined
  ),
  notAnId
)
const NewEnvironmentSlug = EnvironmentSlug.check(notAnId)

export const ProjectList = Schema.Array(ProjectView)

const { runtimeClass, region, git } = ProjectSpec.fields

export const BudgetView = Schema.Struct({
  monthlyCapUsd: Schema.NullOr(Schema.Finite),
  alertThresholdPercent: Schema.NullOr(Schema.Int),
  hardStop: Schema.Boolean,
  month: Schema.String.annotate({ description: "Such as 2026-11: the month that the amounts are of" }),
  spentUsd: Schema.Finite,
  reservedUsd: Schema.Finite.annotate({ description: "Held for what is going on" }),
  remainingUsd: Schema.NullOr(Schema.Finite).annotate({ description: "null: there is no cap" })
}).annotate({ identifier: "Budget" })

const target = { type: "project" } as const
const projects = resourceOperations({
  group: "projects",
  kind: Project,
  parent: inOrganization,
  segment: "projects",
  param: "projectId",
  id: projectParams.projectId,
  target,
  view: ProjectView
})
const { one } = projects

export const Projects = group("projects", "Projects: containers of environments, with their budgets.").add(
  projects.list({ summary: "List projects by slug" }),
  projects.create({
    payload: Schema.Struct({
      name: DisplayName,
      slug: NewProjectSlug,
      runtimeClass: Schema.optionalKey(RuntimeClass),
      region,
      git
    }),
    success: ProjectView,
    summary: "Create a project with its production and preview environments"
  }),
  projects.get(),
  projects.update({
    payload: Schema.Struct({
      name: Schema.optionalKey(DisplayName),
      runtimeClass: Schema.optionalKey(runtimeClass),
      region: Schema.optionalKey(Schema.NullOr(Region)),
      git: Schema.optionalKey(Schema.NullOr(GitSource)),
      previewData: Schema.optionalKey(PreviewData)
    }),
    billing: false
  }),
  projects.delete({ summary: "Delete a project and everything in it" }),
  HttpApiEndpoint.get("getBudget", `${one}/budget`, {
    params: projectParams,
    success: withEtag(BudgetView),
    error: problems()
  }).annotateMerge(
    operation("projects.getBudget", "read", "member", "What a project may spend, and what it has spent", {
      target
    })
  ),
  HttpApiEndpoint.put("setBudget", `${one}/budget`, {
    params: projectParams,
    headers: ifMatch,
    payload: Schema.Struct(BudgetInput.fields),
    success: withEtag(BudgetView),
    error: bodyProblems(402, 412)
  }).annotateMerge(
    operation("projects.setBudget", "write", "admin", "Say what a project may spend in a month", {
      sensitive: true,
      billing: true,
      target
    })
  )
)

export const EnvironmentView = Schema.Struct({
  id: Id,
  slug: Schema.String,
  implicit: Schema.Boolean.annotate({
    description: "Every project has it; it is never declared and never deleted alone"
  }),
  origin: Schema.NullOr(Schema.String.annotate({ format: "uri" })).annotate({
    description: "Where the app answers: cron and queue invocations go there; null until it is named"
  }),
  address: Schema.NullOr(Schema.String.annotate({ format: "uri" })).annotate({
    description:
      "Where the edge serves the app: the same for the environment's whole life; null for moments at first"
  }),
  createdAt: Timestamp
}).annotate({ identifier: "Environment" })

const SigningSecret = Schema.Struct({
  signingSecret: Schema.String.annotate({
    description: "whsec_ and 40 hex digits, shown this once; the one before it is used beside it for 24 hours"
  })
}).annotate({ identifier: "SigningSecret" })

export const AppServiceToken = Schema.Struct({
  appServiceToken: Schema.String.annotate({
    description: "svcapp_ and 40 hex digits, shown this once: what apps present to the platform's services"
  }),
  previousValidUntil: Schema.NullOr(Timestamp).annotate({
    description: "Until then the token before it holds as well; null: there was none"
  })
}).annotate({ identifier: "AppServiceToken" })

const environments = resourceOperations({
  group: "environments",
  kind: Environment,
  parent: inProject,
  segment: "environments",
  param: "environmentId",
  id: Schema.String.annotate({ description: "Id or slug" }),
  target,
  view: EnvironmentView
})

export const Environments = group(
  "environments",
  "Environments of a project: containers of what runs together."
).add(
  environments.list({ summary: "List environments by slug" }),
  environments.create({
    payload: Schema.Struct({ slug: NewEnvironmentSlug }),
    success: EnvironmentView
  }),
  environments.update({
    payload: Schema.Struct({ origin: Schema.NullOr(Origin) }),
    billing: false,
    summary: "Say where the app of an environment answers"
  }),
  HttpApiEndpoint.post("rotateSigningSecret", `${environments.one}/signing-secret/rotate`, {
    params: environments.params,
    headers: idempotencyKey,
    success: SigningSecret,
    error: problems()
  }).annotateMerge(
    operation(
      "environments.rotateSigningSecret",
      "write",
      "admin",
      "Replace the secret that cron and queue invocations are signed with, and show it",
      { sensitive: true, target }
    )
  ),
  HttpApiEndpoint.post("rotateAppServiceToken", `${environments.one}/app-service-token/rotate`, {
    params: environments.params,
    headers: idempotencyKey,
    success: AppServiceToken,
    error: problems()
  }).annotateMerge(
    operation(
      "environments.rotateAppServiceToken",
      "write",
      "admin",
      "Replace the token that apps present to the platform's services, and show it",
      { sensitive: true, target }
    )
  ),
  HttpApiEndpoint.get("requests", `${environments.one}/requests`, {
    params: environments.params,
    query: requestQuery,
    success: RequestPage,
    error: problems()
  }).annotateMerge(
    operation(
      "environments.requests",
      "read",
      "member",
      "List the requests to an environment of the last day, at most 10,000, newest first",
      { target }
    )
  ),
  HttpApiEndpoint.delete("delete", environments.one, {
    params: environments.params,
    success: Deleted,
    error: problems(412)
  }).annotateMerge(
    operation("environments.delete", "destructive", "owner", "Delete an environment and everything in it", {
      sensitive: true,
      conditional: true,
      target
    })
  )
)
