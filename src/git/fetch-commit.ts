/** One commit's objects, without those of its history. */
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { GitError } from "./GitError.ts"
import type { GitRunner } from "./git-runner.ts"

/** Git brings objects that are missing by itself, without the bounds of a fetch: commands that look at objects may not. */
export const noTransport = { GIT_ALLOW_PROTOCOL: "none" }

export const gone = (what: string, ref: string) =>
  new GitError({ code: "ref_not_found", message: `${what} has no ${ref}` })

/** A repository without a commit, of the format that the commit's id is of. */
export const emptyRepository = Effect.fnUntraced(function* (
  { host, onDisk, said, workspace }: GitRunner,
  commit: string
) {
  const folder = path.join(yield* workspace, "repository")
  yield* onDisk(host.directory(folder))
  const format = commit.length === 64 ? "sha256" : "sha1"
  yield* said(folder, "The repository", {
    args: ["init", "--quiet", "--bare", "--template=", `--object-format=${format}`, "."]
  })
  return folder
})

export const fetchCommit = Effect.fnUntraced(function* (
  { said }: GitRunner,
  folder: string,
  { url, config, what }: Effect.Success<ReturnType<GitRunner["reached"]>>,
  commit: string,
  { flags = [], ...bound }: { readonly flags?: ReadonlyArray<string>; readonly mostFileBytes?: number }
) {
  const ref = `refs/svc/${commit}`
  const always = ["--quiet", "--depth=1", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"]
  yield* said(folder, what, {
    args: ["fetch", ...always, ...flags, "--", url.href, `${commit}:${ref}`],
    config,
    ...bound
  })
  // A tag may have the id that was asked for, and be of something else.
  const ask = { args: ["rev-parse", "--verify", `${ref}^{commit}`], env: noTransport }
  const peeled = (yield* said(folder, what, ask)).toString().trim()
  if (peeled !== commit) return yield* gone(what, `commit ${commit}`)
})
