/**
 * What is in repositories that users name: which commit a ref is, and the files of a commit.
 *
 * The address is judged like every one that users name, git connects to an address that passed, and follows no redirect.
 * A commit is fetched alone, without its history, into a folder of its own; nothing is ever checked out, so no filter,
 * hook or attribute of the repository runs or changes what is in the archive. Submodules are fetched by the same rules
 * and stand where they belong. Everything is bounded by bytes, entries and time, and gone when the scope closes.
 */
import * as path from "node:path"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import { externalCall } from "#src/engine/external-call.ts"
import { makeTurns } from "#src/infra/host/turns.ts"
import { type CommitFiles, makeCommitFiles } from "./commit-files.ts"
import { elsewhere, makeComplete } from "./complete-tree.ts"
import { emptyRepository, gone } from "./fetch-commit.ts"
import { GitError } from "./GitError.ts"
import { makeGitRunner } from "./git-runner.ts"
import { type GitCredential, isCommit, namesOfRef, type Repository, type WantedCommit } from "./repository.ts"

export interface FetchedCommit {
  readonly commit: string
  /** Path of a tar archive. The same files give the same archive. */
  readonly archive: string
}

export class GitFetch extends Context.Service<
  GitFetch,
  {
    /** The commit that a branch, a tag or a full name (`refs/pull/1/head`) is now; the id of a commit is itself. */
    readonly resolve: (of: Repository & { readonly ref: string }) => Effect.Effect<string, GitError>
    /** The branch that counts where none is named, without `refs/heads/`, and its commit. */
    readonly head: (
      of: Repository
    ) => Effect.Effect<{ readonly branch: string; readonly commit: string }, GitError>
    /** Files of a commit by their paths, for who reads few of many; of its submodules none. */
    readonly files: (
      of: Repository & { readonly commit: string }
    ) => Effect.Effect<CommitFiles, GitError, Scope.Scope>
    readonly fetch: (of: WantedCommit) => Effect.Effect<FetchedCommit, GitError, Scope.Scope>
  }
>()("svc/git/GitFetch") {
  static readonly layer = Layer.effect(
    GitFetch,
    Effect.gen(function* () {
      const runner = yield* makeGitRunner
      const { host, options, onDisk, workspace, said, reached } = runner
      const complete = makeComplete(runner)
      const commitFiles = makeCommitFiles(runner)
      const fetches = makeTurns(options.atOnce, options.atOnceOfOne)
      const asks = makeTurns(options.asksAtOnce, options.asksAtOnceOfOne)

      const listed = Effect.fnUntraced(function* (of: Repository, args: ReadonlyArray<string>) {
        const { url, config, what } = yield* reached(of)
        const folder = yield* workspace
        const [flags, names] = [
          args.filter((arg) => arg.startsWith("--")),
          args.filter((arg) => !arg.startsWith("--"))
        ]
        const ask = { args: ["ls-remote", ...flags, "--", url.href, ...names], config }
        const text = (yield* said(folder, what, ask, options.askMs)).toString()
        return { what, lines: text.split("\n").map((line) => line.split("\t", 2)) }
      })

      const resolve = Effect.fnUntraced(function* (of: Repository & { readonly ref: string }) {
        if (isCommit(of.ref)) return of.ref
        const names = yield* namesOfRef(of.ref)
        const { what, lines } = yield* listed(of, names)
        const commits = new Map(lines.map(([commit = "", name = ""]) => [name, commit]))
        const found = names.map((name) => commits.get(name)).find((commit) => commit !== undefined)
        return found !== undefined && isCommit(found) ? found : yield* gone(what, `branch or tag ${of.ref}`)
      })

      const head = Effect.fnUntraced(function* (of: Repository) {
        const { what, lines } = yield* listed(of, ["--symref", "HEAD"])
        const branch = lines.flatMap(([value = "", name]) =>
          name === "HEAD" && value.startsWith("ref: refs/heads/")
            ? [value.slice("ref: refs/heads/".length)]
            : []
        )[0]
        const commit = lines.find(([value = "", name]) => name === "HEAD" && isCommit(value))?.[0]
        return branch === undefined || commit === undefined
          ? yield* gone(what, "branch that counts where none is named")
          : { branch, commit }
      })

      const archived = Effect.fnUntraced(function* (folder: string, tree: string) {
        // Of no one and of no time: the same files are the same archive.
        const commit = yield* said(folder, "The repository", {
          args: ["commit-tree", "-m", "source", tree],
          env: Object.fromEntries(
            ["AUTHOR", "COMMITTER"].flatMap((who) => [
              [`GIT_${who}_NAME`, "svc"],
              [`GIT_${who}_EMAIL`, "svc@localhost"],
              [`GIT_${who}_DATE`, "@0 +0000"]
            ])
          )
        })
        const archive = path.join(folder, "source.tar")
        const args = ["archive", "--format=tar", `--output=${archive}`, commit.toString().trim()]
        yield* said(folder, "The repository", { args })
        return archive
      })

      const fetch = Effect.fnUntraced(function* (of: WantedCommit) {
        yield* wholeId(of.commit)
        const folder = yield* emptyRepository(runner, of.commit)
        yield* onDisk(host.directory(path.join(folder, elsewhere)))
        yield* onDisk(host.directory(path.join(folder, "info")))
        yield* onDisk(host.writeFile(path.join(folder, "info", "attributes"), plainFiles))
        const { tree } = yield* complete({ folder, entries: 0, submodules: 0, bytes: 0 }, of, 0)
        const archive = yield* archived(folder, tree)
        return { commit: of.commit, archive }
      })

      const files = Effect.fnUntraced(function* (of: Repository & { readonly commit: string }) {
        yield* wholeId(of.commit)
        return yield* commitFiles(yield* emptyRepository(runner, of.commit), of)
      })

      const within = (timeMs: number, message: string) =>
        Effect.timeoutOrElse({
          duration: timeMs,
          orElse: () => new GitError({ code: "timed_out", message })
        })
      /** Its time begins with its turn; for that it waits no longer than others may take. */
      const inTurn = <A, R>(
        name: string,
        orgId: string,
        body: Effect.Effect<A, GitError, R>,
        [turns, timeMs]: readonly [typeof asks, number]
      ) =>
        body.pipe(
          within(timeMs, `It took longer than ${Math.round(timeMs / 1_000)} s to read the repository`),
          turns.take({ owner: orgId, first: false }),
          within(3 * timeMs, "Too many repositories are being read; try again later"),
          externalCall(name, "read")
        )
      const ask = [asks, 2 * options.askMs] as const

      return GitFetch.of({
        resolve: (of) => inTurn("git.resolve", of.orgId, Effect.scoped(resolve(of)), ask),
        head: (of) => inTurn("git.head", of.orgId, Effect.scoped(head(of)), ask),
        files: (of) => inTurn("git.files", of.orgId, files(of), [fetches, options.fetchMs]),
        fetch: (of) => inTurn("git.fetch", of.orgId, fetch(of), [fetches, options.fetchMs])
      })
    })
  )
}

const wholeId = (commit: string) =>
  isCommit(commit)
    ? Effect.void
    : Effect.fail(new GitError({ code: "invalid", message: "A commit is named by its whole id" }))

/**
 * What a repository says of its own files must not change what is built: nothing is left out, filled in or written anew.
 * This file counts more than those of the repository (gitattributes(5)).
 */
const plainFiles = "* -export-ignore -export-subst -text -ident -filter !eol !working-tree-encoding\n"

export type { GitCredential, Repository, WantedCommit }
