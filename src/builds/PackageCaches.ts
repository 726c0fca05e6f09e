/**
 * What package managers fetched, kept for the next build of the same project: archives in the data folder, by organization,
 * project and lock files. A project whose lock files changed begins with its newest one. They are bounded in bytes, the
 * longest unused go first, and nothing is shared between projects. What code of a fork has left is used for its own pull
 * request only: it can plant what later builds would run. To lose one costs time only.
 */
import { randomUUID } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { AppConfig } from "#src/config.ts"
import { settings } from "./settings.ts"

const mebibyte = 1024 * 1024
const keptOfProject = 2
const idleMs = 14 * 86_400_000
/** How long one may be on its way onto the disk. */
const draftMs = 3_600_000

export interface CacheRef {
  readonly orgId: string
  /** Uid of a project, or of the preview of a fork. */
  readonly owner: string
  readonly locks: string
}

export class PackageCaches extends Context.Service<
  PackageCaches,
  {
    /** The file of the best there is. `isExact`: it was made for the same lock files. */
    readonly find: (
      ref: CacheRef
    ) => Effect.Effect<{ readonly file: string; readonly isExact: boolean } | undefined>
    /** Has it written to a file, which counts once that has succeeded. */
    readonly put: <E>(
      ref: CacheRef,
      write: (file: string) => Effect.Effect<void, E>
    ) => Effect.Effect<void, E>
    /** Removes what is too old, or too much. Answers how many. */
    readonly prune: Effect.Effect<number>
  }
>()("svc/builds/PackageCaches") {
  static readonly layer = Layer.effect(
    PackageCaches,
    Effect.gen(function* () {
      const { dataDir } = yield* AppConfig
      const { cachesMb } = yield* settings
      const root = path.join(dataDir, "build-caches")
      const folderOf = ({ orgId, owner }: CacheRef) => path.join(root, orgId, owner)
      const attempt = <A>(fallback: A, body: () => Promise<A>) =>
        Effect.promise(() => body().catch(() => fallback))

      const filesIn = (folder: string) =>
        attempt([], async () => {
          const names = await fs.readdir(folder, { recursive: true })
          const stats = await Promise.all(
            names.map(async (name) => {
              const file = path.join(folder, name)
              const stat = await fs.stat(file).catch(() => undefined)
              return stat?.isFile() === true ? [{ file, bytes: stat.size, at: stat.mtimeMs }] : []
            })
          )
          return stats.flat().toSorted((a, b) => b.at - a.at)
        })

      const prune = Effect.gen(function* () {
        const now = yield* Clock.currentTimeMillis
        const ofProject = new Map<string, number>()
        let bytes = 0
        let count = 0
        for (const one of yield* filesIn(root)) {
          const folder = path.dirname(one.file)
          const place = (ofProject.get(folder) ?? 0) + 1
          const isDraft = one.file.endsWith(".part")
          if (!isDraft) ofProject.set(folder, place)
          bytes += one.bytes
          const isKept =
            bytes <= cachesMb * mebibyte &&
            (isDraft ? now - one.at < draftMs : place <= keptOfProject && now - one.at < idleMs)
          if (isKept) continue
          bytes -= one.bytes
          count++
          yield* attempt(undefined, () => fs.rm(one.file, { force: true }))
        }
        return count
      })

      return PackageCaches.of({
        find: Effect.fn("PackageCaches.find")(function* (ref) {
          const own = `${ref.locks}.tar`
          const all = (yield* filesIn(folderOf(ref))).filter(({ file }) => file.endsWith(".tar"))
          const exact = all.find(({ file }) => path.basename(file) === own)
          const best = exact ?? all[0]
          if (best === undefined) return undefined
          const now = (yield* Clock.currentTimeMillis) / 1_000
          yield* attempt(undefined, () => fs.utimes(best.file, now, now))
          return { file: best.file, isExact: exact !== undefined }
        }),
        put: (ref, write) => {
          const draft = path.join(folderOf(ref), `${randomUUID()}.part`)
          return Effect.gen(function* () {
            yield* attempt(undefined, async () => {
              await fs.mkdir(folderOf(ref), { recursive: true, mode: 0o700 })
            })
            yield* write(draft)
            yield* attempt(undefined, () => fs.rename(draft, path.join(folderOf(ref), `${ref.locks}.tar`)))
            yield* prune
          }).pipe(
            Effect.ensuring(attempt(undefined, () => fs.rm(draft, { force: true }))),
            Effect.withSpan("PackageCaches.put")
          )
        },
        prune
      })
    })
  )
}
