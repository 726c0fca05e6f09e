/** Processes of this machine, by what their command lines say, and how tests end those that they leave behind. */
import * as fs from "node:fs"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import { codeOf } from "#src/infra/error-code.ts"
import { makeHolding, placeName } from "#src/infra/host/server-holding.ts"

/** Processes whose command line holds `text`. One that has ended is none, whether or not its exit was read. */
export const processesNaming = (
  text: string
): ReadonlyArray<{ readonly pid: number; readonly line: string }> =>
  fs.readdirSync("/proc").flatMap((name) => {
    const pid = Number(name)
    if (!Number.isInteger(pid) || pid === process.pid) return []
    try {
      const line = fs.readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ")
      return line.includes(text) ? [{ pid, line }] : []
    } catch {
      // It ended while the list was read.
      return []
    }
  })

/** What control planes measure disks with names folders of servers as well, for a moment and now and then. */
const measures = /^(nice -n 19 )?du -skD /

/** The same, of servers alone, while a control plane goes on. */
export const serversNaming = (text: string): ReturnType<typeof processesNaming> =>
  processesNaming(text).filter(({ line }) => !measures.test(line))

/** A process that has ended since it was found needs no signal. */
export const signal = (pid: number, name: NodeJS.Signals): void => {
  try {
    process.kill(pid, name)
  } catch (error) {
    if (codeOf(error) !== "ESRCH") throw error
  }
}

/** Kills whatever names `text`, as a fault would, and answers how many those were. */
export const killNaming = (text: string): number => {
  const found = processesNaming(text)
  for (const { pid } of found) signal(pid, "SIGKILL")
  return found.length
}

const parentOf = (pid: string): number => {
  try {
    return Number(/\) \S (\d+)/.exec(fs.readFileSync(`/proc/${pid}/stat`, "utf8"))?.[1])
  } catch {
    // It ended while the list was read.
    return Number.NaN
  }
}

/**
 * The same, with what those have begun: a backend of a killed server goes on until it looks, and may answer one more
 * request before.
 */
export const killNamingWithChildren = (text: string): void => {
  const parents = processesNaming(text).map(({ pid }) => pid)
  const children = fs.readdirSync("/proc").flatMap((name) => {
    return /^\d+$/.test(name) && parents.includes(parentOf(name)) ? [Number(name)] : []
  })
  for (const pid of [...parents, ...children]) signal(pid, "SIGKILL")
}

const hasGroups = (dataDir: string): boolean => {
  const root = "/sys/fs/cgroup"
  const name = placeName(dataDir)
  return (
    fs.existsSync(root) &&
    ["", ...fs.readdirSync(root)].some((controller) => fs.existsSync(path.join(root, controller, name)))
  )
}

/** The control groups of servers whose data is in the folder itself, or in the one that control planes get in it. */
const removeGroups = (folder: string): Promise<void> =>
  Effect.runPromise(
    Effect.forEach(
      [folder, path.join(folder, "data")],
      (dataDir) =>
        Effect.flatMap(makeHolding({ dataDir, serverLimits: "auto" }), ({ leave }) =>
          Effect.ignore(leave)
        ).pipe(
          // Who has just ended is in its group for a moment more.
          Effect.repeat({
            until: () => !hasGroups(dataDir),
            schedule: Schedule.spaced("25 millis"),
            times: 40
          })
        ),
      { discard: true }
    )
  )

/**
 * Ends whatever names a folder, and removes the folder and the control groups of servers that were in it. Postgres is
 * told to end at once: one that is killed leaves its shared memory behind, which is a megabyte of /dev/shm (a container
 * has 64 of them) and one of the 4096 segments of the system, until the machine starts anew.
 */
export const sweep = async (folder: string): Promise<void> => {
  const told = new Set<number>()
  for (const began = performance.now(); ; await new Promise((resolve) => setTimeout(resolve, 20))) {
    const left = processesNaming(folder)
    const waited = performance.now() - began
    if (left.length === 0 || waited > 30_000) break
    for (const { pid, line } of left) {
      if (/\/postgres -D /.test(line) && waited < 15_000) {
        if (told.has(pid)) continue
        told.add(pid)
        signal(pid, "SIGQUIT")
        signal(pid, "SIGCONT")
      } else signal(pid, "SIGKILL")
    }
  }
  await removeGroups(folder)
  fs.rmSync(folder, { recursive: true, force: true, maxRetries: 10 })
}
