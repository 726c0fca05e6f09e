/**
 * A forge that keeps what it is told: GitHub's, Gitea's or GitLab's API as far as the platform asks it. It judges the
 * credential, keeps statuses and comments, and lists pull requests in pages.
 *
 * What it does not do: rate limits but the one that a test sets, permissions beside those of the whole credential, GitLab's
 * transitions of statuses, expiry of an app's tokens, `Link` headers.
 */
import { createPublicKey, createVerify } from "node:crypto"
import type * as http from "node:http"
import * as Effect from "effect/Effect"
import type { ConnectionKind } from "#src/git/connection-kinds.ts"
import { type Received, receiver } from "#test/outbound/receiver.ts"

export interface StandInPull {
  readonly number: number
  readonly head: string
  readonly state?: "open" | "closed" | "merged"
  /** Its commits are in a fork, which may be gone. */
  readonly fork?: string | null
}

export const forgeStandIn = Effect.fnUntraced(function* (
  kind: ConnectionKind,
  { token, appKey }: { readonly token: string; readonly appKey?: string }
) {
  const state = {
    pulls: [] as Array<StandInPull>,
    statuses: [] as Array<Record<string, unknown>>,
    comments: [] as Array<{ id: number; body: string; by: string }>,
    /** What it answers instead, with these headers. */
    instead: undefined as { status: number; headers?: http.OutgoingHttpHeaders } | undefined,
    tokens: 0,
    /** How long a token of an app is good. */
    tokenMs: 3_600_000
  }
  const isGitLab = kind === "gitlab"
  const me = kind === "github_app" ? "our-app[bot]" : "deployer"
  const repo = "acme/shop"

  const pullOf = (pull: StandInPull) => {
    const { number, head, state: is = "open", fork } = pull
    return isGitLab
      ? {
          iid: number,
          title: `Change ${number}`,
          state: is === "open" ? "opened" : is,
          draft: false,
          web_url: `https://forge.test/${number}`,
          sha: head,
          source_branch: "topic",
          target_branch: "main",
          source_project_id: fork === undefined ? 1 : fork === null ? null : 2,
          target_project_id: 1
        }
      : {
          number,
          title: `Change ${number}`,
          state: is === "open" ? "open" : "closed",
          merged_at: is === "merged" ? "2026-01-01T00:00:00Z" : null,
          html_url: `https://forge.test/${number}`,
          head: {
            ref: "topic",
            sha: head,
            repo: fork === undefined ? { full_name: repo } : fork === null ? null : { full_name: fork }
          },
          base: { ref: "main", sha: "0", repo: { full_name: repo } }
        }
  }

  const isApp = (bearer: string) => {
    const [header = "", claims = "", signature = ""] = bearer.split(".")
    if (appKey === undefined) return false
    const { iss } = JSON.parse(Buffer.from(claims, "base64url").toString())
    const verify = createVerify("RSA-SHA256").update(`${header}.${claims}`)
    return iss === "12" && verify.verify(createPublicKey(appKey), signature, "base64url")
  }

  const answerOf = ({ method, path, headers, body }: Received): readonly [status: number, body?: unknown] => {
    const url = new URL(path, "https://forge.test")
    const { pathname, searchParams } = url
    const authorization = headers.authorization ?? ""
    const base = isGitLab ? "/api/v4" : kind === "gitea" || kind === "forgejo" ? "/api/v1" : "/api/v3"
    if (!pathname.startsWith(base)) return [404]
    const at = pathname.slice(base.length)
    if (authorization.startsWith("Bearer ")) {
      if (!isApp(authorization.slice(7))) return [401]
      if (at === "/app") return [200, { slug: "our-app" }]
      if (at === "/app/installations/34/access_tokens") {
        state.tokens++
        return [201, { token, expires_at: new Date(Date.now() + state.tokenMs).toISOString() }]
      }
      return [403]
    }
    const given = isGitLab ? headers["private-token"] : authorization.replace(/^token /, "")
    if (given !== token) return [401]
    if (at === "/user") return [200, isGitLab ? { username: me } : { login: me }]
    const root = isGitLab ? `/projects/${encodeURIComponent(repo)}` : `/repos/${repo}`
    if (!at.startsWith(root)) return [404]
    const rest = at.slice(root.length)
    if (rest === "")
      return [
        200,
        isGitLab
          ? {
              path_with_namespace: repo,
              default_branch: "main",
              http_url_to_repo: `https://forge.test/${repo}.git`
            }
          : { full_name: repo, default_branch: "main", clone_url: `https://forge.test/${repo}.git` }
      ]
    const size = Number(searchParams.get("per_page") ?? searchParams.get("limit") ?? 30)
    const page = Number(searchParams.get("page") ?? 1)
    const paged = <A>(all: ReadonlyArray<A>) => all.slice((page - 1) * size, page * size)
    const single = /^\/(?:pulls|merge_requests)\/(\d+)$/.exec(rest)?.[1]
    if (rest === "/pulls" || rest === "/merge_requests")
      return [200, paged(state.pulls.filter((pull) => (pull.state ?? "open") === "open")).map(pullOf)]
    if (single !== undefined) {
      const found = state.pulls.find(({ number }) => number === Number(single))
      return found === undefined ? [404] : [200, pullOf(found)]
    }
    if (rest.startsWith("/statuses/") && method === "POST") {
      state.statuses.push({ commit: rest.slice("/statuses/".length), ...JSON.parse(body) })
      return [201, {}]
    }
    const commentOf = ({ id, body: text, by }: (typeof state.comments)[number]) =>
      isGitLab ? { id, body: text, author: { username: by } } : { id, body: text, user: { login: by } }
    if (/^\/(issues\/7\/comments|merge_requests\/7\/notes)$/.test(rest)) {
      // Gitea has no pages here.
      const all = kind === "gitea" || kind === "forgejo" ? state.comments : paged(state.comments)
      if (method === "GET") return [200, all.map(commentOf)]
      state.comments.push({ id: state.comments.length + 1, body: JSON.parse(body).body, by: me })
      return [201, {}]
    }
    const edited = /^\/(?:issues\/comments|merge_requests\/7\/notes)\/(\d+)$/.exec(rest)?.[1]
    const comment = state.comments.find(({ id }) => id === Number(edited))
    if (comment === undefined || method !== (isGitLab ? "PUT" : "PATCH")) return [404]
    comment.body = JSON.parse(body).body
    return [200, {}]
  }

  const there = yield* receiver((request, response) => {
    const { instead } = state
    if (instead !== undefined) return void response.writeHead(instead.status, instead.headers).end("{}")
    const [status, body] = answerOf(request)
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body ?? {}))
  })
  return { state, url: there.url(), received: there.received }
})
