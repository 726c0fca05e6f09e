/**
 * Single files of a commit, for who reads few of many: its folders are fetched, and of its files those that are read. A
 * server that cannot leave files out (uploadpack.allowFilter) sends them all, within the bounds of a fetch.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { fetchCommit, noTransport } from "./fetch-commit.ts"
import { GitError } from "./GitError.ts"
import type { GitRunner } from "./git-runner.ts"
import type { Repository } from "./repository.ts"
import { parseTree } from "./tree.ts"

export interface CommitFiles {
  /** A file of it by its path; none: there is no regular file. At most `mostBytes`. */
  readonly file: (name: string, mostBytes: number) => Effect.Effect<Option.Option<Buffer>, GitError>
}

export const makeCommitFiles = (runner: GitRunner) => {
  const { said, reached } = runner
  return Effect.fnUntraced(function* (folder: string, of: Repository & { readonly commit: string }) {
    const repository = yield* reached(of)
    const { config, what } = repository
    const { commit } = of
    yield* fetchCommit(runner, folder, repository, commit, { flags: ["--filter=blob:none"] })
    const file = Effect.fnUntraced(function* (name: string, mostBytes: number) {
      const parts = name.split("/")
      if (parts.some((part) => part === "" || part === "." || part === "..") || /[\0\n]/.test(name))
        return Option.none<Buffer>()
      const args = ["--literal-pathspecs", "ls-tree", "-z", "--full-tree", commit, "--", name]
      const [entry] = parseTree(yield* said(folder, what, { args, env: noTransport })) ?? []
      if (entry === undefined || !entry.mode.startsWith("100")) return Option.none<Buffer>()
      // Git fetches it now, as the folders were: from an address that was judged.
      const read = said(folder, what, { args: ["cat-file", "blob", entry.object], config, mostBytes })
      return Option.some(
        yield* Effect.mapError(read, (error) =>
          error.code === "too_large"
            ? new GitError({ code: "too_large", message: `${name} is larger than ${mostBytes} bytes` })
            : error
        )
      )
    })
    return { file } satisfies CommitFiles
  })
}
