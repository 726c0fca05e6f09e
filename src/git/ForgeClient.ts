/** What is asked of a forge beside git itself, in one form for all kinds of them. */
import type * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { GitCredential } from "./repository.ts"

export class ForgeError extends Schema.TaggedError<ForgeError>()("ForgeError", {
  /**
   * - `credential`: the forge does not take it, or it may not do this.
   * - `missing`: there is no such repository, pull request or commit, or it is not shown to this credential.
   * - `limited`: too many requests; later.
   * - `unreachable`: no answer that can be used.
   * - `rejected`: anything else that the forge refuses.
   */
  code: Schema.Literals(["credential", "missing", "limited", "unreachable", "rejected"]),
  /** For users; nothing that the forge said is repeated in it. */
  message: Schema.String
}) {}

export interface RepositoryInfo {
  /** As the forge spells it. */
  readonly repo: string
  readonly defaultBranch: string
  readonly cloneUrl: string
}

export interface PullRequest {
  readonly number: number
  readonly title: string
  readonly state: "open" | "closed" | "merged"
  readonly isDraft: boolean
  /** For people. */
  readonly url: string
  readonly head: { readonly commit: string; readonly branch: string }
  readonly base: { readonly branch: string }
  /** Its commits are in somebody else's repository. */
  readonly isFork: boolean
}

export interface CommitStatus {
  /** What is judged, such as `svc/plan`. */
  readonly context: string
  readonly state: "pending" | "success" | "failure" | "error"
  /** Cut to what the forge takes. */
  readonly description: string
  readonly targetUrl?: string | undefined
}

/** Repositories are `owner/name`. */
export interface ForgeClient {
  /** As whom the forge knows the credential. Fails when it is not taken. */
  readonly account: Effect.Effect<string, ForgeError>
  readonly repository: (repo: string) => Effect.Effect<RepositoryInfo, ForgeError>
  /** Open ones, at most 250, those changed last first. */
  readonly pullRequests: (repo: string) => Effect.Effect<ReadonlyArray<PullRequest>, ForgeError>
  readonly pullRequest: (repo: string, number: number) => Effect.Effect<PullRequest, ForgeError>
  readonly setStatus: (repo: string, commit: string, status: CommitStatus) => Effect.Effect<void, ForgeError>
  /**
   * One comment of ours: the one that holds the marker is written anew, else one is made. The marker is put into it as an
   * HTML comment, which forges do not show. Only what the connection's own account has written counts.
   */
  readonly comment: (
    repo: string,
    number: number,
    comment: { readonly marker: string; readonly body: string }
  ) => Effect.Effect<void, ForgeError>
  /** For git. */
  readonly credential: Effect.Effect<GitCredential, ForgeError>
}
