/** GitLab (REST API, version 4). What others call a pull request is a merge request there, and a comment a note. */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { type CommitStatus, type ForgeClient, ForgeError, type PullRequest } from "../ForgeClient.ts"
import type { ForgeRequests } from "../forge-requests.ts"
import { isMarked, marked, pagesOf } from "./pages.ts"

const User = Schema.Struct({ username: Schema.NonEmptyString })
const Project = Schema.Struct({
  path_with_namespace: Schema.NonEmptyString,
  default_branch: Schema.NonEmptyString,
  http_url_to_repo: Schema.NonEmptyString
})
const MergeRequest = Schema.Struct({
  iid: Schema.Int,
  title: Schema.String,
  state: Schema.Literals(["opened", "closed", "merged", "locked"]),
  draft: Schema.optional(Schema.Boolean),
  web_url: Schema.String,
  /** Null while it is prepared. */
  sha: Schema.NullOr(Schema.String),
  source_branch: Schema.String,
  target_branch: Schema.String,
  source_project_id: Schema.NullOr(Schema.Int),
  target_project_id: Schema.Int
})
const Note = Schema.Struct({ id: Schema.Int, body: Schema.String, author: User })

const pullRequestOf = (request: typeof MergeRequest.Type): ReadonlyArray<PullRequest> =>
  request.sha === null
    ? []
    : [
        {
          number: request.iid,
          title: request.title,
          // A locked one is about to be merged.
          state: request.state === "opened" || request.state === "locked" ? "open" : request.state,
          isDraft: request.draft === true,
          url: request.web_url,
          head: { commit: request.sha, branch: request.source_branch },
          base: { branch: request.target_branch },
          isFork: request.source_project_id !== request.target_project_id
        }
      ]

const states: Readonly<Record<CommitStatus["state"], string>> = {
  pending: "pending",
  success: "success",
  failure: "failed",
  error: "failed"
}
const perPage = 50

export const gitlab = (ask: ForgeRequests): Omit<ForgeClient, "credential"> => {
  const at = (repo: string) => `/projects/${encodeURIComponent(repo)}`
  const account = Effect.map(ask.get("/user", User), ({ username }) => username)
  return {
    account,
    repository: (repo) =>
      Effect.map(ask.get(at(repo), Project), (project) => ({
        repo: project.path_with_namespace,
        defaultBranch: project.default_branch,
        cloneUrl: project.http_url_to_repo
      })),
    pullRequests: (repo) =>
      pagesOf(perPage, 5, (page) =>
        ask.get(
          `${at(repo)}/merge_requests?state=opened&order_by=updated_at&per_page=${perPage}&page=${page}`,
          Schema.Array(MergeRequest)
        )
      ).pipe(Effect.map((requests) => requests.flatMap(pullRequestOf))),
    pullRequest: Effect.fnUntraced(function* (repo, number) {
      const [found] = pullRequestOf(yield* ask.get(`${at(repo)}/merge_requests/${number}`, MergeRequest))
      return (
        found ?? (yield* new ForgeError({ code: "missing", message: "The merge request has no commit yet" }))
      )
    }),
    setStatus: (repo, commit, { context, state, description, targetUrl }) =>
      ask
        .send("POST", `${at(repo)}/statuses/${encodeURIComponent(commit)}`, {
          name: context,
          state: states[state],
          description: description.slice(0, 255),
          ...(targetUrl === undefined ? {} : { target_url: targetUrl })
        })
        .pipe(
          // One that waits cannot begin to wait: it does already.
          Effect.catchIf(
            ({ code }) => code === "rejected" && state === "pending",
            () => Effect.void
          )
        ),
    comment: Effect.fnUntraced(function* (repo, number, { marker, body }) {
      const own = yield* account
      const notes = `${at(repo)}/merge_requests/${number}/notes`
      const all = yield* pagesOf(100, 10, (page) =>
        ask.get(`${notes}?per_page=100&page=${page}`, Schema.Array(Note))
      )
      const text = { body: marked(marker, body) }
      const ours = all.find((note) => note.author.username === own && isMarked(marker, note.body))
      if (ours === undefined) return yield* ask.send("POST", notes, text)
      if (ours.body === text.body) return
      yield* ask.send("PUT", `${notes}/${ours.id}`, text)
    })
  }
}
