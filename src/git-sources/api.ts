/** Git sources: manifests that are kept from git repositories. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { GitSource, GitSourceInput, GitSourceStatus, ManifestPath } from "#schemas/git-source.ts"
import { Name } from "#schemas/names.ts"
import { Commit, PullRequestNumber } from "#schemas/preview.ts"
import { Id, idempotencyKey, Timestamp } from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"
import { inOrganization, resourceOperations } from "#src/api/definition/resource-group.ts"

const { commit, lookedAt, planned, applied, drift, fault } = GitSourceStatus.fields

export const GitSourceView = Schema.Struct({
  id: Id,
  name: Schema.String,
  url: Schema.String.annotate({ format: "uri" }),
  connection: Schema.NullOr(Id),
  ref: Schema.String,
  path: Schema.NullOr(Schema.String).annotate({
    description: "null: what `svc.yaml` of the repository names, else svc.manifest.yaml"
  }),
  intervalSeconds: Schema.Int,
  prune: Schema.Boolean,
  suspended: Schema.Boolean,
  reviewed: Schema.Boolean,
  status: Schema.Literals(["pending", "synced", "held", "failed", "suspended"]).annotate({
    description:
      "It was not looked at yet; the organization is what the manifest says; the plan is left to people; the last look failed; nothing is looked at"
  }),
  commit,
  lookedAt,
  planned,
  applied,
  drift,
  fault,
  createdAt: Timestamp,
  updatedAt: Timestamp
}).annotate({ identifier: "GitSourceView" })

const sources = resourceOperations({
  group: "gitSources",
  kind: GitSource,
  parent: inOrganization,
  segment: "git-sources",
  param: "sourceId",
  view: GitSourceView
})
const { one, params, target } = sources
const { url, path: _, ...optional } = GitSourceInput.fields

export const GitSources = group(
  "gitSources",
  "Git sources: the organization is kept what a manifest in a repository says."
).add(
  sources.list(),
  sources.create({
    payload: Schema.Struct({ name: Name, ...GitSourceInput.fields }),
    success: GitSourceView,
    sensitive: true,
    summary:
      "Create a git source; it applies the manifest with the rights of who creates it, and never more than an admin's"
  }),
  sources.get(),
  sources.update({
    payload: Schema.Struct({
      url: Schema.optionalKey(url),
      path: Schema.optionalKey(
        Schema.NullOr(ManifestPath).annotate({ description: "null: as `svc.yaml` of the repository says" })
      ),
      ...optional
    }),
    sensitive: true,
    summary: "Change a git source, suspend or resume it; from then on it has the rights of who changed it"
  }),
  sources.delete({ summary: "Delete a git source; what it applied stays" }),
  HttpApiEndpoint.post("sync", `${one}/sync`, {
    params,
    headers: idempotencyKey,
    success: GitSourceView.pipe(HttpApiSchema.status(202)),
    error: problems()
  }).annotateMerge(
    operation("gitSources.sync", "write", "admin", "Look at the repository now, and apply what is there", {
      target
    })
  ),
  HttpApiEndpoint.post("approve", `${one}/approve`, {
    params,
    headers: idempotencyKey,
    payload: Schema.Struct({
      pullRequest: PullRequestNumber,
      commit: Commit.annotate({ description: "The one that was looked at" })
    }),
    success: GitSourceView.pipe(HttpApiSchema.status(202)),
    error: bodyProblems()
  }).annotateMerge(
    operation(
      "gitSources.approve",
      "write",
      "admin",
      "Let this commit of a fork be planned, so that its pull request shows what merging it would do",
      { target }
    )
  )
)
