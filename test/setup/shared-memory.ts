/**
 * Shared memory of Postgres servers (dynamic_shared_memory_type = posix). One that is killed leaves a segment behind, which
 * only the next start on the same data folder removes: many tests kill servers and then do away with the folder.
 */
import * as fs from "node:fs"
import * as path from "node:path"
import { setTimeout as pause } from "node:timers/promises"

const systemFolder = "/dev/shm"
/** A segment that is just being made is not mapped yet. */
const youngMs = 1_000

/**
 * Removes segments that were made after `sinceMs` (epoch milliseconds) and that no process maps, whoever left them. While
 * any server runs, such as one of another run of the tests, nothing is removed: a server keeps segments for its next
 * backends that none maps at the moment. Backends of one that was just ended may need a moment to be gone.
 */
export const removeOrphanedSegments = async (
  sinceMs: number,
  { folder = systemFolder, serverRuns = anyServerRuns, patienceMs = 5_000 } = {}
): Promise<void> => {
  const candidates = segmentsIn(folder).filter((file) => {
    const made = fs.statSync(file, { throwIfNoEntry: false })?.mtimeMs
    return made !== undefined && made >= sinceMs && made < Date.now() - youngMs
  })
  if (candidates.length === 0) return
  for (const until = Date.now() + patienceMs; serverRuns(); await pause(50)) if (Date.now() >= until) return
  // Which are mapped is looked up last: what is mapped by then was not left behind.
  const maps = ofEveryProcess("maps")
  for (const file of candidates) if (!maps.includes(`${file}\n`)) fs.rmSync(file, { force: true })
}

const segmentsIn = (folder: string): ReadonlyArray<string> =>
  fs.existsSync(folder)
    ? fs
        .readdirSync(folder)
        .filter((name) => /^PostgreSQL\.\d+$/.test(name))
        .map((name) => path.join(folder, name))
    : []

const anyServerRuns = (): boolean => /^postgres$/m.test(ofEveryProcess("comm"))

const ofEveryProcess = (file: "maps" | "comm"): string =>
  fs
    .readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => {
      try {
        return fs.readFileSync(`/proc/${pid}/${file}`, "utf8")
      } catch {
        // It has ended, or is somebody else's, whose segments this process may not remove either.
        return ""
      }
    })
    .join("")
