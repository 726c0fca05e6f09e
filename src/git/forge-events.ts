/** What forges send: who proves it how, and what of it counts. */
import { createHash, createHmac, timingSafeEqual } from "node:crypto"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type { ConnectionKind } from "./connection-kinds.ts"

type Headers = Readonly<Record<string, string | undefined>>

/** What a forge tells of. Repositories are in lower case. */
export interface ForgeEvent {
  readonly deliveryId: string
  readonly event: "push" | "pull_request" | "other"
  readonly repo: string | null
  /** That was pushed, or a tag. */
  readonly branch: string | null
  readonly pullRequest: number | null
  /** The pull request was closed before. */
  readonly reopened: boolean
}

/** The digests are compared: of texts of different lengths too, in the same time. */
const isSame = (a: string, b: string): boolean =>
  timingSafeEqual(createHash("sha256").update(a).digest(), createHash("sha256").update(b).digest())

/**
 * GitHub: `X-Hub-Signature-256`, an HMAC with SHA-256 of the body (Validating webhook deliveries); Gitea and Forgejo send the
 * same as `X-Gitea-Signature` without its prefix. GitLab sends the secret itself (`X-Gitlab-Token`).
 */
export const isProven = (
  kind: ConnectionKind,
  secret: Redacted.Redacted,
  headers: Headers,
  body: Uint8Array
): boolean => {
  const value = Redacted.value(secret)
  if (kind === "gitlab") return isSame(headers["x-gitlab-token"] ?? "", value)
  const given = headers["x-hub-signature-256"] ?? `sha256=${headers["x-gitea-signature"] ?? ""}`
  return isSame(given, `sha256=${createHmac("sha256", value).update(body).digest("hex")}`)
}

const Named = Schema.Struct({ full_name: Schema.String })
const Push = Schema.Struct({ ref: Schema.String, repository: Named })
const Pull = Schema.Struct({
  action: Schema.optional(Schema.String),
  pull_request: Schema.Struct({ number: Schema.Int }),
  repository: Named
})
const Namespaced = Schema.Struct({ path_with_namespace: Schema.String })
const GitLabPush = Schema.Struct({ ref: Schema.String, project: Namespaced })
const GitLabMerge = Schema.Struct({
  object_attributes: Schema.Struct({ iid: Schema.Int, action: Schema.optional(Schema.String) }),
  project: Namespaced
})
const json = <A>(schema: Schema.Codec<A, unknown>) =>
  Schema.decodeUnknownOption(Schema.fromJsonString(schema))
const decode = { push: json(Push), pull: json(Pull), labPush: json(GitLabPush), labMerge: json(GitLabMerge) }

const names: Readonly<Record<string, "push" | "pull_request">> = {
  push: "push",
  "Push Hook": "push",
  "Tag Push Hook": "push",
  pull_request: "pull_request",
  // Gitea tells by another name that somebody has pushed to a pull request.
  pull_request_sync: "pull_request",
  "Merge Request Hook": "pull_request"
}

/** A text that whoever knows the secret chose: only what an id looks like is kept. */
const usualId = /^[\w.-]{1,200}$/

export const eventOf = (kind: ConnectionKind, headers: Headers, body: string): ForgeEvent => {
  const isGitLab = kind === "gitlab"
  const given = isGitLab
    ? (headers["idempotency-key"] ?? headers["x-gitlab-event-uuid"])
    : (headers["x-github-delivery"] ?? headers["x-gitea-delivery"])
  const deliveryId =
    given !== undefined && usualId.test(given) ? given : createHash("sha256").update(body).digest("hex")
  const name = isGitLab ? headers["x-gitlab-event"] : (headers["x-github-event"] ?? headers["x-gitea-event"])
  const other: ForgeEvent = {
    ...{ deliveryId, event: "other", repo: null, branch: null, pullRequest: null, reopened: false }
  }
  const event = names[name ?? ""]
  if (event === "push") {
    const found = isGitLab
      ? Option.map(decode.labPush(body), ({ ref, project }) => ({ ref, repo: project.path_with_namespace }))
      : Option.map(decode.push(body), ({ ref, repository }) => ({ ref, repo: repository.full_name }))
    return Option.match(found, {
      onNone: () => other,
      onSome: ({ ref, repo }) => ({
        ...other,
        event,
        repo: kept(repo),
        branch: ref.replace(/^refs\/(heads|tags)\//, "").slice(0, 255)
      })
    })
  }
  if (event === "pull_request") {
    const found = isGitLab
      ? Option.map(decode.labMerge(body), (told) => ({
          number: told.object_attributes.iid,
          reopened: told.object_attributes.action === "reopen",
          repo: told.project.path_with_namespace
        }))
      : Option.map(decode.pull(body), (told) => ({
          number: told.pull_request.number,
          reopened: told.action === "reopened",
          repo: told.repository.full_name
        }))
    return Option.match(found, {
      onNone: () => other,
      onSome: ({ number, repo, reopened }) =>
        number > 0 && number < 2 ** 31
          ? { ...other, event, repo: kept(repo), pullRequest: number, reopened }
          : other
    })
  }
  return other
}

const kept = (repo: string) => repo.toLowerCase().slice(0, 300)
