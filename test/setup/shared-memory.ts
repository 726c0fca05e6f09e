/**
 * Shared memory of Postgres servers (dynamic_shared_memory_type = posix). One that is killed leaves a segment behind, which
 * only the next start on the same data folder removes: many tests kill servers and then do away with the folder.
 */
import * as fs from "node:fs"
import * as path from "node:path"

const folder = "/dev/shm"
/** A segment that is just being made is not mapped yet. */
const youngMs = 1_000

/** Removes segments that were made after `sinceMs` (epoch milliseconds) and that no process maps, whoever left them. */
export const removeOrphanedSegments = (sinceMs: number): void => {
  const candidates = segments().filter((file) => {
    const made = fs.statSync(file, { throwIfNoEntry: false })?.mtimeMs
    return made !== undefined && made >= sinceMs && made < Date.now() - youngMs
  })
  // Which are mapped is looked up last: what is mapped by then was not left behind.
  const maps = candidates.length === 0 ? "" : allMaps()
  for (const file of candidates) if (!maps.includes(`${file}\n`)) fs.rmSync(file, { force: true })
}

const segments = (): ReadonlyArray<string> =>
  fs.existsSync(folder)
    ? fs
        .readdirSync(folder)
        .filter((name) => /^PostgreSQL\.\d+$/.test(name))
        .map((name) => path.join(folder, name))
    : []

const allMaps = (): string =>
  fs
    .readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => {
      try {
        return fs.readFileSync(`/proc/${pid}/maps`, "utf8")
      } catch {
        // It has ended, or is somebody else's, whose segments this process may not remove either.
        return ""
      }
    })
    .join("")
