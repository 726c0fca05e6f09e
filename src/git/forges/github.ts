/**
 * GitHub (REST API, version 2022-11-28), and Gitea and Forgejo, whose API is made after it. Where they differ it is said.
 */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { ConnectionKind } from "../connection-kinds.ts"
import type { ForgeClient, PullRequest } from "../ForgeClient.ts"
import type { ForgeRequests } from "../forge-requests.ts"
import { isMarked, marked, pagesOf } from "./pages.ts"

const User = Schema.Struct({ login: Schema.NonEmptyString })
const App = Schema.Struct({ slug: Schema.NonEmptyString })
const Repository = Schema.Struct({
  full_name: Schema.NonEmptyString,
  default_branch: Schema.NonEmptyString,
  clone_url: Schema.NonEmptyString
})
const Side = Schema.Struct({
  ref: Schema.String,
  sha: Schema.String,
  /** Null when a fork was deleted. */
  repo: Schema.NullOr(Schema.Struct({ full_name: Schema.String }))
})
const Pull = Schema.Struct({
  number: Schema.Int,
  title: Schema.String,
  state: Schema.Literals(["open", "closed"]),
  draft: Schema.optional(Schema.NullOr(Schema.Boolean)),
  /** GitHub says it only of a single one, Gitea of each. */
  merged: Schema.optional(Schema.NullOr(Schema.Boolean)),
  merged_at: Schema.optional(Schema.NullOr(Schema.String)),
  html_url: Schema.String,
  head: Side,
  base: Side
})
const Comment = Schema.Struct({
  id: Schema.Int,
  body: Schema.NullOr(Schema.String),
  user: Schema.NullOr(User)
})

const pullRequestOf = (pull: typeof Pull.Type): PullRequest => ({
  number: pull.number,
  title: pull.title,
  state:
    pull.state === "open"
      ? "open"
      : pull.merged === true || (pull.merged_at ?? null) !== null
        ? "merged"
        : "closed",
  isDraft: pull.draft === true,
  url: pull.html_url,
  head: { commit: pull.head.sha, branch: pull.head.ref },
  base: { branch: pull.base.ref },
  isFork: pull.head.repo?.full_name.toLowerCase() !== pull.base.repo?.full_name.toLowerCase()
})

/** GitHub refuses longer ones. */
const longestDescription = 140
const perPage = 50

export const githubLike = (ask: ForgeRequests, kind: ConnectionKind): Omit<ForgeClient, "credential"> => {
  const isGitHub = kind === "github_app" || kind === "github_token"
  const at = (repo: string) => `/repos/${repo.split("/").map(encodeURIComponent).join("/")}`
  // The name differs; the other one is not looked at.
  const paged = (page: number, size: number) => `${isGitHub ? "per_page" : "limit"}=${size}&page=${page}`
  const newestFirst = isGitHub ? "sort=updated&direction=desc" : "sort=recentupdate"

  /** Comments of an app are by its bot. */
  const account =
    kind === "github_app"
      ? Effect.map(ask.getAsApp("/app", App), ({ slug }) => `${slug}[bot]`)
      : Effect.map(ask.get("/user", User), ({ login }) => login)

  return {
    account,
    repository: (repo) =>
      Effect.map(ask.get(at(repo), Repository), ({ full_name, default_branch, clone_url }) => ({
        repo: full_name,
        defaultBranch: default_branch,
        cloneUrl: clone_url
      })),
    pullRequests: (repo) =>
      pagesOf(perPage, 5, (page) =>
        ask.get(`${at(repo)}/pulls?state=open&${newestFirst}&${paged(page, perPage)}`, Schema.Array(Pull))
      ).pipe(Effect.map((pulls) => pulls.map(pullRequestOf))),
    pullRequest: (repo, number) => Effect.map(ask.get(`${at(repo)}/pulls/${number}`, Pull), pullRequestOf),
    setStatus: (repo, commit, { context, state, description, targetUrl }) =>
      ask.send("POST", `${at(repo)}/statuses/${encodeURIComponent(commit)}`, {
        context,
        state,
        description: description.slice(0, longestDescription),
        ...(targetUrl === undefined ? {} : { target_url: targetUrl })
      }),
    comment: Effect.fnUntraced(function* (repo, number, { marker, body }) {
      const own = yield* account
      const all = yield* pagesOf(100, 10, (page) =>
        ask.get(`${at(repo)}/issues/${number}/comments?${paged(page, 100)}`, Schema.Array(Comment)).pipe(
          // Gitea answers with all of them, whatever page is asked for.
          Effect.map((comments) => (isGitHub || page === 1 ? comments : []))
        )
      )
      const text = { body: marked(marker, body) }
      const ours = all.find((comment) => comment.user?.login === own && isMarked(marker, comment.body))
      if (ours === undefined) return yield* ask.send("POST", `${at(repo)}/issues/${number}/comments`, text)
      if (ours.body === text.body) return
      yield* ask.send("PATCH", `${at(repo)}/issues/comments/${ours.id}`, text)
    })
  } satisfies Omit<ForgeClient, "credential">
}
