/** Noticing that processes of managed servers have ended, by the pid files that these keep. */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { looksLikeUid } from "#schemas/names.ts"
import { codeOf } from "./error-code.ts"
import { pidName } from "./redis-settings.ts"
import { serverFiles } from "./server-files.ts"

const pidFiles = { databases: path.join("data", "postmaster.pid"), caches: pidName }

/** Files that are read at a time. */
const atOnce = 32

/**
 * Each look answers which servers, by the resource that they belong to, have ended since the one before. Whether a
 * server should run is not known here: an orderly stop is an end as well.
 */
export const makeServerDeaths = (dataDir: string) => {
  let alive: ReadonlySet<string> = new Set()
  return Effect.gen(function* () {
    const now = new Set<string>()
    yield* Effect.forEach(
      yield* serverFiles(dataDir, pidFiles),
      ({ server, file }) =>
        Effect.map(pidIn(file), (pid) => {
          if (pid !== undefined && exists(pid)) now.add(server)
        }),
      { concurrency: atOnce, discard: true }
    )
    const ended = [...alive].filter((name) => !now.has(name))
    alive = now
    return [...new Set(ended.map(resourceOf))].filter(looksLikeUid)
  })
}

/** Standbys have the name of their primary and a number. */
const resourceOf = (name: string) => name.slice(0, 36)

const pidIn = (file: string) =>
  Effect.map(
    Effect.promise(() => fs.readFile(file, "utf8").catch(() => "")),
    (text) => {
      const pid = Number.parseInt(text, 10)
      return pid > 1 ? pid : undefined
    }
  )

const exists = (pid: number): boolean => {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return codeOf(error) === "EPERM"
  }
}
