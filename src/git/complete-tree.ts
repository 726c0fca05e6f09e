/** The objects of a commit, and its tree with the files of its submodules in it, within the bounds of one fetch. */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { fetchCommit } from "./fetch-commit.ts"
import { GitError } from "./GitError.ts"
import type { GitRunner } from "./git-runner.ts"
import { makeRefuseLargeFileStorage } from "./large-files.ts"
import { isBelow, parseUrl, submoduleUrl, type WantedCommit } from "./repository.ts"
import { parseModules, parseTree } from "./tree.ts"

/** One fetch of a commit with what belongs to it. */
interface Fetching {
  readonly folder: string
  readonly entries: number
  readonly submodules: number
  /** Of all files in its trees so far. */
  readonly bytes: number
}

interface Completed extends Omit<Fetching, "folder"> {
  readonly tree: string
}

/** Beside the repository: an empty folder. */
export const elsewhere = "../empty"

export const makeComplete = (runner: GitRunner) => {
  const { git, said, reached, options } = runner
  const refuseLargeFileStorage = makeRefuseLargeFileStorage(runner)

  /** Brings a commit's objects, and answers its tree with the files of its submodules in it. */
  const complete: (
    fetching: Fetching,
    of: WantedCommit,
    depth: number
  ) => Effect.Effect<Completed, GitError> = Effect.fnUntraced(function* (fetching, of, depth) {
    const { folder } = fetching
    const repository = yield* reached(of)
    const { url, what } = repository
    const tooLarge = (than: string) =>
      new GitError({ code: "too_large", message: `${what} has more than ${than}` })
    const packed = yield* bytesIn(path.join(folder, "objects", "pack"))
    const mostMiB = Math.round(options.fileBytes / 1_048_576)
    if (packed >= options.fileBytes) return yield* tooLarge(`${mostMiB} MiB with its submodules`)
    // All packs together are no larger than one may be.
    const mostFileBytes = options.fileBytes - packed
    yield* fetchCommit(runner, folder, repository, of.commit, { mostFileBytes })

    // Each entry is printed as it is found: a tree that would unfold without end is one that prints too much.
    const list = {
      args: ["ls-tree", "-r", "-z", "-l", "--full-tree", of.commit],
      mostBytes: options.entries * 256
    }
    const tree = parseTree(yield* said(folder, what, list))
    if (tree === undefined)
      return yield* new GitError({ code: "failed", message: `${what} has a tree that cannot be read` })
    let entries = fetching.entries + tree.length
    if (entries > options.entries) return yield* tooLarge(`${options.entries} files`)
    let bytes = tree.reduce((sum, entry) => sum + entry.bytes, fetching.bytes)
    if (bytes > options.fileBytes) return yield* tooLarge(`${mostMiB} MiB of files`)
    yield* refuseLargeFileStorage(folder, what, tree)

    const links = tree.filter(({ kind }) => kind === "commit")
    let submodules = fetching.submodules + links.length
    if (links.length === 0) return { tree: `${of.commit}^{tree}`, entries, submodules, bytes }
    if (depth >= options.submoduleDepth || submodules > options.submodules)
      return yield* tooLarge(
        `${options.submodules} submodules, or more than ${options.submoduleDepth} within one another`
      )
    const modules = yield* modulesOf(folder, of.commit)
    const index = {
      GIT_INDEX_FILE: path.join(folder, `index-${depth}-${of.commit}`),
      GIT_DIR: folder,
      // Some commands want one, and none of these looks at it.
      GIT_WORK_TREE: path.join(folder, elsewhere)
    }
    yield* said(folder, what, { args: ["read-tree", of.commit], env: index })
    for (const link of links) {
      const name = link.path.toString()
      const written = modules.get(name)
      if (written === undefined)
        return yield* new GitError({
          code: "unsupported",
          message: `${what} does not say where its submodule ${name} is`
        })
      const target = submoduleUrl(url, written)
      const parsed = yield* Effect.mapError(
        parseUrl(target),
        ({ code, message }) => new GitError({ code, message: `A submodule of ${what.slice(4)}: ${message}` })
      )
      const sub = yield* complete(
        { folder, entries, submodules, bytes },
        {
          orgId: of.orgId,
          url: target,
          commit: link.object,
          credential: isBelow(parsed, of.credentialBelow) ? of.credential : undefined,
          credentialBelow: of.credentialBelow
        },
        depth + 1
      )
      entries = sub.entries
      submodules = sub.submodules
      bytes = sub.bytes
      const removal = Buffer.concat([
        Buffer.from(`0 ${"0".repeat(of.commit.length)}\t`),
        link.path,
        Buffer.of(0)
      ])
      yield* said(folder, what, {
        args: ["update-index", "-z", "--index-info"],
        input: removal,
        env: index
      })
      yield* said(folder, what, { args: ["read-tree", `--prefix=${name}/`, sub.tree], env: index })
    }
    const merged = yield* said(folder, what, { args: ["write-tree"], env: index })
    return { tree: merged.toString().trim(), entries, submodules, bytes }
  })

  const modulesOf = Effect.fnUntraced(function* (folder: string, commit: string) {
    const blob = `--blob=${commit}:.gitmodules`
    const ended = yield* git(folder, { args: ["config", "--no-includes", blob, "-z", "--list"] })
    return ended.code === 0 ? parseModules(ended.stdout.toString()) : new Map<string, string>()
  })

  return complete
}

/** Of the files in a folder; none: it is not there yet. */
const bytesIn = (folder: string) =>
  Effect.promise(async () => {
    const names = await fs.readdir(folder).catch((): ReadonlyArray<string> => [])
    const sizes = names.map(async (name) => (await fs.stat(path.join(folder, name))).size)
    return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0)
  })
