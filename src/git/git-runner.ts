/**
 * Running git for one purpose: in a folder of its own that goes with the scope, with the authorities that requests to users'
 * addresses trust, and connecting to addresses that were judged and to no others.
 */
import { randomUUID } from "node:crypto"
import * as fs from "node:fs/promises"
import * as net from "node:net"
import * as path from "node:path"
import * as tls from "node:tls"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Host, type HostError } from "#src/infra/host/Host.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { explained } from "./explain.ts"
import { GitError } from "./GitError.ts"
import { GitOptions } from "./options.ts"
import { credentialConfig, parseUrl, type Repository } from "./repository.ts"
import { type GitCommand, runGit } from "./run-git.ts"

export type Ask = Pick<GitCommand, "args" | "config" | "env" | "input" | "mostBytes"> & {
  readonly mostFileBytes?: number
}

export const makeGitRunner = Effect.gen(function* () {
  const host = yield* Host
  const outbound = yield* Outbound
  const { caPem } = yield* CertificateAuthority
  const options = yield* GitOptions
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
      const all = new Set([...tls.getCACertificates("default"), ...tls.getCACertificates("system"), caPem])
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

  return { host, options, onDisk, workspace, git, said, reached }
})
export type GitRunner = Effect.Success<typeof makeGitRunner>

const workspacePrefix = "work-"
