/** What a managed server may take of the machine, by its size, and how far it is from that. Pure. */
import type { CacheSize, DatabaseSize } from "#schemas/catalog.ts"

export interface ServerLimits {
  /** Everything that its processes hold, with what the kernel holds for them. */
  readonly memoryBytes: number
  readonly cpus: number
  /** Processes and threads. */
  readonly processes: number
}

/** How the machine holds a server, as it was found. What the machine cannot limit is absent. */
export interface HeldServer {
  /** Absent: servers have no control groups here. */
  readonly group?: {
    /** Whether the running process is in its group; absent: none runs. */
    readonly inside?: boolean
    readonly limits: { readonly [Name in keyof ServerLimits]?: number | undefined }
    /** What cannot be given back without ending a process. */
    readonly heldBytes: number
  }
  /** Processes of it that the kernel ended for its memory limit, since the group was made. */
  readonly kills: number
  /** How early the kernel ends it when the whole machine has no memory left; absent: none runs. */
  readonly oomScore?: number
}

/**
 * From 1000, ended first, to -1000, never ended (proc_pid_oom_score_adj(5)). Of a server the parts go before the whole:
 * without a backend or the child that writes a file, the server goes on.
 */
export const oomScores = { server: 500, partOfServer: 900, platform: -800 } as const

const MiB = 2 ** 20

/** What buffers of a cache's clients may hold together, and so the largest value that can be read or written. */
export const clientBufferBytes = (memoryMb: number): number => Math.min(512, Math.max(32, memoryMb / 4)) * MiB

/**
 * The data (`maxmemory`), once more while the append-only file is written anew (a child has a copy of every page that is
 * written to meanwhile), a quarter for what the allocator cannot use, the buffers of clients, and 64 MiB for the program,
 * its connections and its scripts.
 */
export const cacheLimits = (
  { memoryMb, cpus }: Pick<CacheSize, "memoryMb" | "cpus">,
  appendOnly: boolean
): ServerLimits => ({
  memoryBytes: memoryMb * (appendOnly ? 2.25 : 1.25) * MiB + clientBufferBytes(memoryMb) + 64 * MiB,
  cpus,
  // It has a handful of threads and at most one child.
  processes: 64
})

/**
 * A server forks for whoever connects, before it knows whether there is room, up to twice the connections; the rest is
 * for its own processes, parallel workers, standbys and the archive command.
 */
export const databaseLimits = ({ memoryMb, cpus, maxConnections }: DatabaseSize): ServerLimits => ({
  memoryBytes: memoryMb * MiB,
  cpus,
  processes: 2 * (maxConnections + 10) + 64
})

/** Whether what a server holds fits into a limit, with something left to work with. */
export const hasRoom = (heldBytes: number, limitBytes: number): boolean => heldBytes <= limitBytes * 0.9

/** One sentence for each way in which a server is not held as its size says. */
export const limitFaults = (held: HeldServer, wanted: ServerLimits): ReadonlyArray<string> => {
  const { group, oomScore } = held
  const early =
    oomScore !== undefined && oomScore < oomScores.server
      ? ["the kernel would end it as late as the platform itself"]
      : []
  if (group === undefined) return early
  return [
    ...(group.inside === false ? ["the server runs outside of its control group"] : []),
    ...(["memoryBytes", "cpus", "processes"] as const).flatMap((name) => {
      const now = group.limits[name]
      if (now === undefined || now === wanted[name]) return []
      // A lower limit than what is in use would end the server: it is set once there is room.
      if (name === "memoryBytes" && now > wanted[name] && !hasRoom(group.heldBytes, wanted[name])) return []
      const unit = { memoryBytes: "bytes of memory", cpus: "processors", processes: "processes" }[name]
      return [
        `the limit is ${now === Number.POSITIVE_INFINITY ? "none" : now} and should be ${wanted[name]} ${unit}`
      ]
    }),
    ...early
  ]
}

/** What people read when the kernel has ended processes of a server. */
export const outOfMemory = (what: string, { memoryBytes }: ServerLimits, todo: string): string =>
  `${what}: the memory limit of ${Math.round(memoryBytes / MiB)} MiB was reached. ${todo}`
