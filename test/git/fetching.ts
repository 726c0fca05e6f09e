/** Fetching from real repositories on this machine. */
import { execFile } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { promisify } from "node:util"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { AppConfig } from "#src/config.ts"
import { GitFetch } from "#src/git/GitFetch.ts"
import { GitOptions } from "#src/git/options.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Host } from "#src/infra/host/Host.ts"
import { Names, NameUnknown } from "#src/outbound/names.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"

/** What names resolve to. */
export const book = new Map<string, ReadonlyArray<string>>([
  ["git.example.test", ["127.0.0.1"]],
  ["sub.example.test", ["127.0.0.1"]],
  ["metadata.example.test", ["169.254.169.254"]],
  ["private.example.test", ["10.1.2.3"]]
])
const names = Layer.succeed(Names, (name: string) => {
  const found = book.get(name)
  return found === undefined
    ? Effect.fail(new NameUnknown({ message: `The name ${name} has no address` }))
    : Effect.succeed(found)
})

export const fetchingLayer = (
  bounds: Partial<GitOptions> = {},
  outboundAllow: ReadonlyArray<string> = ["127.0.0.0/8", "::1/128"]
) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const dataDir = yield* Effect.acquireRelease(
        Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-gitdata-"))),
        (folder) => Effect.sync(() => fs.rmSync(folder, { recursive: true, force: true }))
      )
      // Who fetches is another user where the tests are root.
      fs.chmodSync(dataDir, 0o755)
      const defaults = yield* GitOptions
      return GitFetch.layer.pipe(
        Layer.provide(Layer.succeed(GitOptions, { ...defaults, ...bounds })),
        Layer.provideMerge(Outbound.layer.pipe(Layer.provide(names))),
        Layer.provideMerge(CertificateAuthority.layer.pipe(Layer.provide(memorySecrets().layer))),
        Layer.provideMerge(Host.layer),
        Layer.provideMerge(AppConfig.layerWith({ dataDir, outboundAllow }))
      )
    })
  )

const run = promisify(execFile)

/** What is in an archive: each path with what `tar` says of its kind and mode, and the text of files. */
export const contentsOf = (archive: string) =>
  Effect.promise(async () => {
    const { stdout } = await run("tar", ["--numeric-owner", "-tvf", archive])
    const lines = stdout.split("\n").filter((line) => line !== "")
    const entries = new Map<string, string>()
    for (const line of lines) {
      const [mode = "", , , , , ...rest] = line.split(/\s+/)
      const [name = ""] = rest.join(" ").split(" -> ")
      const text = mode.startsWith("-") ? (await run("tar", ["-xOf", archive, name])).stdout : ""
      entries.set(name, `${mode} ${text}`.trim())
    }
    return entries
  })
