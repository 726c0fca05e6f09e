/** Git LFS (https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md): files that are kept elsewhere. */
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { GitError } from "./GitError.ts"
import type { GitRunner } from "./git-runner.ts"
import type { TreeEntry } from "./tree.ts"

export const makeRefuseLargeFileStorage = ({ said }: Pick<GitRunner, "said">) => {
  /** What is in the repository in their stead is of no use to a build. */
  const refuseLargeFileStorage = Effect.fnUntraced(function* (
    folder: string,
    what: string,
    tree: ReadonlyArray<TreeEntry>
  ) {
    const rules = tree.filter(
      (entry) =>
        entry.kind === "blob" &&
        path.posix.basename(entry.path.toString()) === ".gitattributes" &&
        entry.bytes <= 65_536
    )
    if (rules.length === 0 || !(yield* contains(folder, rules.slice(0, 100), /filter=lfs/))) return
    const small = tree.filter(({ kind, bytes }) => kind === "blob" && bytes >= 100 && bytes < 1_024)
    if (yield* contains(folder, small, /(^|\n)version https:\/\/git-lfs\.github\.com\/spec\/v1\n/))
      return yield* new GitError({
        code: "unsupported",
        message: `${what} keeps files in Git LFS, which is not fetched here: commit the files themselves, or deploy the folder with "svc deploy"`
      })
  })
  const contains = Effect.fnUntraced(function* (
    folder: string,
    blobs: ReadonlyArray<TreeEntry>,
    pattern: RegExp
  ) {
    if (blobs.length === 0) return false
    const input = blobs.map(({ object }) => `${object}\n`).join("")
    const mostBytes = blobs.reduce((sum, { bytes }) => sum + bytes + 200, 0)
    const printed = yield* said(folder, "The repository", {
      args: ["cat-file", "--batch"],
      input,
      mostBytes
    })
    return pattern.test(printed.toString("latin1"))
  })

  return refuseLargeFileStorage
}
