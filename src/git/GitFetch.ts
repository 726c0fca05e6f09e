/**
 * What is in repositories that users name: which commit a ref is, and the files of a commit.
 *
 * The address is judged like every one that users name, git connects to an address that passed, and follows no redirect.
 * A commit is fetched alone, without its history, into a folder of its own; nothing is ever checked out, so no filter,
 * hook or attribute of the repository runs or changes what is in the archive. Submodules are fetched by the same rules
 * and stand where they belong. Everything is bounded by bytes, entries and time, and gone when the scope closes.
 */
import { randomUUID } from "node:crypto"
import * as fs from "node:fs/promises"
import * as net from "node:net"
import * as path from "node:path"
import * as tls from "node:tls"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import { externalCall } from "#src/engine/external-call.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Host, type HostError } from "#src/infra/host/Host.ts"
import { makeTurns } from "#src/infra/host/turns.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { explained } from "./explain.ts"
import { GitError } from "./GitError.ts"
import { GitOptions } from "./options.ts"
import {
  credentialConfig,
  type GitCredential,
  isCommit,
  namesOfRef,
  parseUrl,
  type Repository,
  submoduleUrl
} from "./repository.ts"
import { type GitCommand, runGit } from "./run-git.ts"
import { parseModules, parseTree, type TreeEntry } from "./tree.ts"

/** A commit, and what belongs to it. */
export interface WantedCommit extends Repository {
  readonly commit: string
  /**
   * Address below which submodules are given the credential as well; absent: none is. Whoever wrote the commit names its
   * submodules, and gets to see their files.
   */
  readonly credentialBelow?: string | undefined
  /** Whether they are brought at all; absent: they are. */
  readonly submodules?: boolean
}

export interface FetchedCommit {
  readonly commit: string
  /** Path of a tar archive. The same files give the same archive. */
  readonly archive: string
  /** A file of it by its path; none: there is no regular file. At most `mostBytes`. */
  readonly file: (name: string, mostBytes?: number) => Effect.Effect<Option.Option<Buffer>, GitError>
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
    readonly fetch: (of: WantedCommit) => Effect.Effect<FetchedCommit, GitError, Scope.Scope>
  }
>()("svc/git/GitFetch") {
  static readonly layer = Layer.effect(
    GitFetch,
    Effect.gen(function* () {
      const host = yield* Host
      const outbound = yield* Outbound
      const { caPem } = yield* CertificateAuthority
      const options = yield* GitOptions
      const fetches = makeTurns(options.atOnce, options.atOnceOfOne)
      const asks = makeTurns(options.asksAtOnce, options.asksAtOnceOfOne)
      const base = path.join(host.dataDir, "git")
      const identity = host.runAs === undefined ? {} : { uid: host.runAs.uid, gid: host.runAs.gid }

      const onDisk = Effect.mapError(
        ({ message, cause }: HostError) => new GitError({ code: "failed", message, cause })
      )

      const program = yield* Effect.cached(
        Effect.flatMap(host.which("git"), (found) =>
          Option.isSome(found)
            ? Effect.succeed(found.value)
            : Effect.fail(
                new GitError({ code: "unavailable", message: "There is no git on this machine: install it" })
              )
        )
      )

      /** Whom git trusts: whoever requests to users' addresses trust. */
      const authorities = yield* Effect.cached(
        Effect.gen(function* () {
          const file = path.join(base, "authorities.pem")
          const all = new Set([
            ...tls.getCACertificates("default"),
            ...tls.getCACertificates("system"),
            caPem
          ])
          yield* host.directory(base)
          yield* host.writeFile(file, [...all].map((pem) => pem.trimEnd()).join("\n"))
          return file
        }).pipe(onDisk)
      )

      const workspace = Effect.acquireRelease(
        Effect.gen(function* () {
          const folder = path.join(base, `${workspacePrefix}${randomUUID()}`)
          yield* host.directory(folder)
          return folder
        }).pipe(onDisk),
        (folder) => Effect.ignore(host.removeAll(folder))
      )

      /** What a killed process left, which took no longer than a fetch may. */
      const sweep = Effect.gen(function* () {
        const oldest = (yield* Clock.currentTimeMillis) - 2 * options.fetchMs
        yield* Effect.promise(async () => {
          const names = await fs.readdir(base).catch((): ReadonlyArray<string> => [])
          for (const name of names.filter((one) => one.startsWith(workspacePrefix))) {
            const folder = path.join(base, name)
            const stat = await fs.stat(folder).catch(() => undefined)
            if (stat !== undefined && stat.mtimeMs < oldest)
              await fs.rm(folder, { recursive: true, force: true }).catch(() => {})
          }
        })
      })
      yield* sweep

      type Ask = Pick<GitCommand, "args" | "config" | "env" | "input" | "mostBytes"> & {
        readonly mostFileBytes?: number
      }
      const git = Effect.fnUntraced(function* (folder: string, ask: Ask, timeMs = options.fetchMs) {
        const { cpuSeconds, memoryBytes } = options
        const { mostFileBytes: fileBytes = options.fileBytes, ...command } = ask
        return yield* runGit({
          ...command,
          program: yield* program,
          home: folder,
          identity,
          bounds: { fileBytes, memoryBytes, cpuSeconds, timeMs }
        })
      })
      /** What it prints; any end but a good one is a failure. */
      const said = Effect.fnUntraced(function* (folder: string, what: string, ask: Ask, timeMs?: number) {
        const ended = yield* git(folder, ask, timeMs)
        return ended.code === 0 ? ended.stdout : yield* explained(what, ended)
      })

      /** How to connect to the repository's host: to an address that was judged, and to no other. */
      const reached = Effect.fnUntraced(function* ({ url: text, credential }: Repository) {
        const url = yield* parseUrl(text)
        const { addresses } = yield* Effect.mapError(
          outbound.reach(url.href),
          ({ _tag, message }) =>
            new GitError({ code: _tag === "OutboundRefused" ? "address_refused" : "unreachable", message })
        )
        const name = url.hostname
        const literal = net.isIP(name.replaceAll(/^\[|\]$/g, "")) !== 0
        const judged = addresses.map((address) => (net.isIPv6(address) ? `[${address}]` : address)).join()
        const config: ReadonlyArray<readonly [string, string]> = [
          ["http.sslCAInfo", yield* authorities],
          ...(literal ? [] : [["http.curloptResolve", `${name}:${url.port || "443"}:${judged}`] as const]),
          ...credentialConfig(credential)
        ]
        return { url, config, what: `The repository ${url.href}` }
      })

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

      const gone = (what: string, ref: string) =>
        new GitError({ code: "ref_not_found", message: `${what} has no ${ref}` })

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

      /** Brings a commit's objects, and answers its tree with the files of its submodules in it. */
      const complete: (
        fetching: Fetching,
        of: WantedCommit,
        depth: number
      ) => Effect.Effect<Completed, GitError> = Effect.fnUntraced(function* (fetching, of, depth) {
        const { folder } = fetching
        const { url, config, what } = yield* reached(of)
        const ref = `refs/svc/${of.commit}`
        const flags = ["--quiet", "--depth=1", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"]
        const tooLarge = (than: string) =>
          new GitError({ code: "too_large", message: `${what} has more than ${than}` })
        const packed = yield* bytesIn(path.join(folder, "objects", "pack"))
        const mostMiB = Math.round(options.fileBytes / 1_048_576)
        if (packed >= options.fileBytes) return yield* tooLarge(`${mostMiB} MiB with its submodules`)
        yield* said(folder, what, {
          args: ["fetch", ...flags, "--", url.href, `${of.commit}:${ref}`],
          config,
          // All packs together are no larger than one may be.
          mostFileBytes: options.fileBytes - packed
        })
        // A tag may have the id that was asked for, and be of something else.
        const peeled = (yield* said(folder, what, { args: ["rev-parse", "--verify", `${ref}^{commit}`] }))
          .toString()
          .trim()
        if (peeled !== of.commit) return yield* gone(what, `commit ${of.commit}`)

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

        const links = of.submodules === false ? [] : tree.filter(({ kind }) => kind === "commit")
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
            ({ code, message }) =>
              new GitError({ code, message: `A submodule of ${what.slice(4)}: ${message}` })
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

      /** Files that are kept elsewhere: what is in the repository in their stead is of no use to a build. */
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

      const modulesOf = Effect.fnUntraced(function* (folder: string, commit: string) {
        const blob = `--blob=${commit}:.gitmodules`
        const ended = yield* git(folder, { args: ["config", "--no-includes", blob, "-z", "--list"] })
        return ended.code === 0 ? parseModules(ended.stdout.toString()) : new Map<string, string>()
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
        if (!isCommit(of.commit))
          return yield* new GitError({ code: "invalid", message: "A commit is named by its whole id" })
        const folder = path.join(yield* workspace, "repository")
        yield* onDisk(host.directory(folder))
        const format = of.commit.length === 64 ? "sha256" : "sha1"
        yield* said(folder, "The repository", {
          args: ["init", "--quiet", "--bare", "--template=", `--object-format=${format}`, "."]
        })
        yield* onDisk(host.directory(path.join(folder, elsewhere)))
        yield* onDisk(host.directory(path.join(folder, "info")))
        yield* onDisk(host.writeFile(path.join(folder, "info", "attributes"), plainFiles))
        const { tree } = yield* complete({ folder, entries: 0, submodules: 0, bytes: 0 }, of, 0)
        const archive = yield* archived(folder, tree)
        const file = Effect.fnUntraced(function* (name: string, mostBytes = 1024 * 1024) {
          const parts = name.split("/")
          if (parts.some((part) => part === "" || part === "." || part === "..") || /[\0\n]/.test(name))
            return Option.none<Buffer>()
          const args = ["--literal-pathspecs", "ls-tree", "-z", "-l", "--full-tree", tree, "--", name]
          const [entry] = parseTree(yield* said(folder, "The repository", { args })) ?? []
          if (entry === undefined || !entry.mode.startsWith("100")) return Option.none<Buffer>()
          if (entry.bytes > mostBytes)
            return yield* new GitError({
              code: "too_large",
              message: `${name} is larger than ${mostBytes} bytes`
            })
          const blob = { args: ["cat-file", "blob", entry.object], mostBytes }
          return Option.some(yield* said(folder, "The repository", blob))
        })
        return { commit: of.commit, archive, file }
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
        fetch: (of) => inTurn("git.fetch", of.orgId, fetch(of), [fetches, options.fetchMs])
      })
    })
  )
}

const workspacePrefix = "work-"

/** Of the files in a folder; none: it is not there yet. */
const bytesIn = (folder: string) =>
  Effect.promise(async () => {
    const names = await fs.readdir(folder).catch((): ReadonlyArray<string> => [])
    const sizes = names.map(async (name) => (await fs.stat(path.join(folder, name))).size)
    return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0)
  })

/**
 * Forges read paths without regard to case, and unfold what is escaped: an address that they might read otherwise is below
 * nothing.
 */
const isBelow = (url: URL, base: string | undefined): boolean =>
  base !== undefined &&
  !/%|\/\//.test(url.pathname) &&
  url.href.toLowerCase().startsWith(`${base.replace(/\/+$/, "").toLowerCase()}/`)
/** Beside the repository: an empty folder. */
const elsewhere = "../empty"

/**
 * What a repository says of its own files must not change what is built: nothing is left out, filled in or written anew.
 * This file counts more than those of the repository (gitattributes(5)).
 */
const plainFiles = "* -export-ignore -export-subst -text -ident -filter !eol !working-tree-encoding\n"

export type { GitCredential, Repository }
