/** Previews of pull requests. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as Schema from "effect/Schema"
import { lineOf } from "#schemas/display-text.ts"
import { Commit, Preview, PreviewDatabase, PullRequestNumber } from "#schemas/preview.ts"
import { Deleted, Id, idempotencyKey, ifMatch, Timestamp } from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"
import { inProject, resourceOperations } from "#src/api/definition/resource-group.ts"

export const PreviewView = Schema.Struct({
  id: Id,
  pullRequest: Schema.Int,
  commit: Schema.String,
  title: Schema.NullOr(Schema.String),
  fork: Schema.Boolean,
  approvedCommit: Schema.NullOr(Schema.String).annotate({
    description: "Of a fork: the commit that somebody let have secrets and data"
  }),
  trusted: Schema.Boolean.annotate({
    description:
      "Whether what runs there has the variables of `preview`, and data: not a fork's commit that nobody approved"
  }),
  status: Schema.Literals(["pending", "open", "closing", "failed"]),
  environment: Schema.String.annotate({ description: "Slug of its environment: deploy there" }),
  address: Schema.NullOr(Schema.String.annotate({ format: "uri" })).annotate({
    description: "Where the edge serves it; null for moments at first"
  }),
  branchId: Schema.NullOr(Id).annotate({ description: "Its copy of a database; null: it has none" }),
  deploymentId: Schema.NullOr(Id).annotate({
    description:
      "Of its commit, where a git connection follows the repository; null: deploy to its environment yourself"
  }),
  problem: Schema.NullOr(Schema.String).annotate({
    description: "Why it is not ready, or has not what it should have; null: nothing is wrong"
  }),
  expiresAt: Schema.NullOr(Timestamp).annotate({ description: "null: it ends when it is closed" }),
  createdAt: Timestamp,
  updatedAt: Timestamp
}).annotate({ identifier: "Preview" })

const previews = resourceOperations({
  group: "previews",
  kind: Preview,
  parent: inProject,
  segment: "previews",
  param: "previewId",
  view: PreviewView
})
const { one, params, target } = previews

const expiresInDays = Schema.optionalKey(
  Schema.NullOr(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 365 }))).annotate({
    description: "Days until it is closed by itself; default 14, null: not by itself"
  })
)
const title = Schema.optionalKey(Schema.NullOr(lineOf(300)))

export const Previews = group(
  "previews",
  "Previews of pull requests: an environment with an address, and perhaps a copy of a database."
).add(
  previews.list({ summary: "List previews by pull request" }),
  previews.create({
    payload: Schema.Struct({
      pullRequest: PullRequestNumber,
      commit: Commit,
      title,
      fork: Schema.optionalKey(
        Schema.Boolean.annotate({ description: "Its commits are in somebody else's repository" })
      ),
      database: Schema.optionalKey(
        Schema.NullOr(Schema.toEncoded(PreviewDatabase)).annotate({
          description:
            "The database that it gets a copy of; left out: as the project's `databaseBranch` says; null: none"
        })
      ),
      expiresInDays
    }),
    success: PreviewView,
    sensitive: true,
    summary: "Open the preview of a pull request"
  }),
  previews.get(),
  previews.update({
    payload: Schema.Struct({ commit: Schema.optionalKey(Commit), title, expiresInDays }),
    summary: "Say what the pull request would merge now, or when its preview is closed by itself"
  }),
  HttpApiEndpoint.post("approve", `${one}/approve`, {
    params,
    headers: idempotencyKey,
    payload: Schema.Struct({ commit: Commit.annotate({ description: "The one that was looked at" }) }),
    success: PreviewView,
    error: bodyProblems()
  }).annotateMerge(
    operation(
      "previews.approve",
      "dangerous",
      "admin",
      "Let this commit of a fork have the secrets and the data that previews have",
      { sensitive: true, target }
    )
  ),
  HttpApiEndpoint.delete("close", one, {
    params,
    headers: ifMatch,
    success: Deleted,
    error: problems(412)
  }).annotateMerge(
    operation("previews.close", "destructive", "admin", "Close a preview, and delete everything of it", {
      target
    })
  )
)
