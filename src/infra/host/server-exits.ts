/**
 * Noticing that processes of managed servers have ended: by the pid files that servers keep, and by what the kernel counts
 * of those that it ended, after which the server itself may go on.
 */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { looksLikeUid } from "#schemas/names.ts"
import { codeOf } from "../error-code.ts"
import { pidName } from "../redis/settings.ts"
import { serverFiles } from "./server-files.ts"

const pidFiles = { databases: path.join("data", "postmaster.pid"), caches: pidName }

/** Files that are read at a time. */
const atOnce = 32

/**
 * Each look answers which servers, by the resource that they belong to, have ended since the one before; the first one,
 * which have ended and left their pid file, so that an end is noticed that came before it. Whether a server should run
 * is not known here: an orderly stop is an end as well.
 */
export const makeServerDeaths = (
  dataDir: string,
  /** Processes that the kernel has ended, by server. */
  kills: Effect.Effect<ReadonlyMap<string, number>> = Effect.succeed(new Map())
) => {
  let alive: ReadonlySet<string> | undefined
  let killed: ReadonlyMap<string, number> | undefined
  return Effect.gen(function* () {
    const counts = yield* kills
    const named = new Set<string>()
    const now = new Set<string>()
    yield* Effect.forEach(
      yield* serverFiles(dataDir, pidFiles),
      ({ server, file }) =>
        Effect.promise(async () => {
          const pid = await pidIn(file)
          if (pid === undefined) return
          named.add(server)
          if (await exists(pid)) now.add(server)
        }),
      { concurrency: atOnce, discard: true }
    )
    const ended = [...(alive ?? named)].filter((name) => !now.has(name))
    alive = now
    const before = killed ?? new Map<string, number>()
    const robbed = [...counts].flatMap(([name, count]) => (count > (before.get(name) ?? 0) ? [name] : []))
    killed = counts
    return [...new Set([...ended, ...robbed].map(resourceOf))].filter(looksLikeUid)
  })
}

/** Standbys have the name of their primary and a number. */
const resourceOf = (name: string) => name.slice(0, 36)

const pidIn = async (file: string) => {
  const pid = Number.parseInt(await fs.readFile(file, "utf8").catch(() => ""), 10)
  return pid > 1 ? pid : undefined
}

const exists = async (pid: number): Promise<boolean> => {
  // A dead process whose exit nobody has read can be sent signals, and has no command line.
  if (process.platform === "linux")
    return (await fs.readFile(`/proc/${pid}/cmdline`).catch(() => "")).length > 0
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return codeOf(error) === "EPERM"
  }
}
