/**
 * A control group for each managed server, named by the server's key, below one folder of this installation. It bounds
 * what all processes of the server take together, outlives the control plane as they do, and counts which of them the
 * kernel ended. A server's first process is in its group before it becomes the server (`launch.ts`).
 */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { codeOf } from "../error-code.ts"
import { type Controller, type GroupPlace, type GroupSystem, thisSystem } from "./control-group-place.ts"
import { type HeldServer, hasRoom, type ServerLimits } from "./server-limits.ts"

type Held = NonNullable<HeldServer["group"]>

/** The length of time, in microseconds, in which so much processor time may be used. */
const periodUs = 100_000
/** A limit of the memory controller of version 1 that is higher than this is none. */
const noneAbove = 2 ** 60
/** Processes of a server that was just ended may need a moment to be gone. */
const removeTries = 40

/** Acts on the groups of a place that was found. Failures are those of the system calls. */
export const controlGroups = ({ version, folders }: GroupPlace, system: GroupSystem = thisSystem) => {
  const folderOf = (controller: Controller, name: string): string | undefined => {
    const parent = folders.get(controller)
    return parent === undefined ? undefined : path.join(parent, name)
  }
  const memoryOf = (name: string) => path.join(folders.get("memory") ?? "", name)
  /** Each once. */
  const foldersOf = (name: string) => [...new Set([...folders.values()].map((one) => path.join(one, name)))]
  const write = (folder: string, file: string, value: number | string) =>
    system.write(path.join(folder, file), String(value))

  const memoryLimitOf = (folder: string) =>
    numberIn(path.join(folder, version === 2 ? "memory.max" : "memory.limit_in_bytes"), noneAbove)
  /** What cannot be given back without ending a process. */
  const heldIn = async (folder: string): Promise<number> => {
    const stat = (await textIn(path.join(folder, "memory.stat"))) ?? ""
    const [own, shared] = version === 2 ? ["anon", "shmem"] : ["rss", "shmem"]
    return (fieldIn(stat, own) ?? 0) + (fieldIn(stat, shared) ?? 0)
  }

  const limitMemory = async (folder: string, bytes: number): Promise<void> => {
    // A lower limit than what is held would end a process: a later look lowers it.
    if (!hasRoom(await heldIn(folder), bytes) && bytes < ((await memoryLimitOf(folder)) ?? 0)) return
    if (version === 2) {
      await write(folder, "memory.max", bytes)
      // What is swapped out would be taken from everybody else's disk.
      if (await exists(path.join(folder, "memory.swap.max"))) await write(folder, "memory.swap.max", 0)
      return
    }
    // Memory with swap is never less than memory, so which goes first depends on the direction.
    const both = "memory.memsw.limit_in_bytes"
    const now = await numberIn(path.join(folder, both))
    const names = ["memory.limit_in_bytes", ...(now === undefined ? [] : [both])]
    for (const file of now !== undefined && bytes > now ? names.toReversed() : names)
      await write(folder, file, bytes)
  }

  /** Makes the group, or changes the one that is there. */
  const limit = async (name: string, limits: ServerLimits): Promise<void> => {
    for (const folder of foldersOf(name)) await fs.mkdir(folder, { recursive: true })
    // One that this machine refuses, such as more processor time than it may give, keeps no other from being set.
    const done = await Promise.allSettled([
      limitMemory(memoryOf(name), limits.memoryBytes),
      limitCpu(folderOf("cpu", name), limits.cpus),
      limitProcesses(folderOf("pids", name), limits.processes)
    ])
    const failed = done.find((one) => one.status === "rejected")
    if (failed !== undefined) throw failed.reason
  }

  const limitCpu = async (folder: string | undefined, cpus: number): Promise<void> => {
    if (folder === undefined) return
    const quota = Math.round(cpus * periodUs)
    if (version === 2) {
      await write(folder, "cpu.max", `${quota} ${periodUs}`)
      await write(folder, "cpu.weight", Math.round(cpus * 100))
    } else {
      await write(folder, "cpu.cfs_period_us", periodUs)
      await write(folder, "cpu.cfs_quota_us", quota)
      await write(folder, "cpu.shares", Math.round(cpus * 1024))
    }
  }

  const limitProcesses = async (folder: string | undefined, processes: number): Promise<void> => {
    if (folder !== undefined) await write(folder, "pids.max", processes)
  }

  const cpusOf = async (folder: string): Promise<number | undefined> => {
    if (version === 2) {
      const [quota, period] = ((await textIn(path.join(folder, "cpu.max"))) ?? "").trim().split(" ")
      if (quota === "max") return Number.POSITIVE_INFINITY
      return quota === undefined || quota === "" ? undefined : Number(quota) / Number(period)
    }
    const quota = await numberIn(path.join(folder, "cpu.cfs_quota_us"))
    const period = await numberIn(path.join(folder, "cpu.cfs_period_us"))
    if (quota === undefined || period === undefined) return undefined
    return quota < 0 ? Number.POSITIVE_INFINITY : quota / period
  }

  /** Processes that the kernel ended in it. */
  const kills = async (name: string): Promise<number> => {
    const file = path.join(memoryOf(name), version === 2 ? "memory.events" : "memory.oom_control")
    return fieldIn((await textIn(file)) ?? "", "oom_kill") ?? 0
  }

  const look = async (name: string, pid: number | undefined): Promise<Held> => {
    const memory = memoryOf(name)
    const cpu = folderOf("cpu", name)
    const pids = folderOf("pids", name)
    const bytes = await memoryLimitOf(memory)
    const inside = pid === undefined ? [] : await Promise.all(foldersOf(name).map((one) => pidsIn(one)))
    return {
      ...(pid === undefined ? {} : { inside: inside.every((some) => some.includes(String(pid))) }),
      limits: {
        memoryBytes: bytes,
        cpus: cpu === undefined ? undefined : await cpusOf(cpu),
        processes: pids === undefined ? undefined : await numberIn(path.join(pids, "pids.max"))
      },
      heldBytes: await heldIn(memory)
    }
  }

  return {
    limit,
    look,
    kills,
    /** What a process writes its own number to, to be in the group. */
    joins: (name: string): ReadonlyArray<string> =>
      foldersOf(name).map((folder) => path.join(folder, "cgroup.procs")),
    /** Brings processes that run already into the group, the one that begins others first. */
    take: async (name: string, pid: number): Promise<void> => {
      for (const folder of foldersOf(name)) {
        // Until none is left that was begun by one which was not yet inside.
        for (let round = 0; round < 5; round++) {
          const inside = await pidsIn(folder)
          const outside = [pid, ...(await descendants(system.procDir, pid))].filter(
            (one) => !inside.includes(String(one))
          )
          if (outside.length === 0) break
          for (const one of outside) {
            await write(folder, "cgroup.procs", one).catch((cause: unknown) => {
              if (one === pid || codeOf(cause) !== "ESRCH") throw cause
            })
          }
        }
      }
    },
    /** Answers whether it is gone: a group with processes stays. */
    remove: async (name: string): Promise<boolean> => {
      let gone = true
      for (const folder of foldersOf(name)) gone = (await removed(folder, system)) && gone
      return gone
    },
    /** The names of all groups that there are. */
    names: async (): Promise<ReadonlyArray<string>> => {
      const some = await Promise.all(
        [...new Set(folders.values())].map((folder) =>
          fs.readdir(folder, { withFileTypes: true }).catch(() => [])
        )
      )
      return [...new Set(some.flat().flatMap((entry) => (entry.isDirectory() ? [entry.name] : [])))]
    },
    /** The folder that all are in, once it is empty. */
    removePlace: async (): Promise<void> => {
      for (const folder of new Set(folders.values())) await removed(folder, system)
    }
  }
}
export type ControlGroups = ReturnType<typeof controlGroups>

const removed = async (folder: string, system: GroupSystem): Promise<boolean> => {
  for (let tries = 0; tries < removeTries; tries++) {
    try {
      await system.removeGroup(folder)
      return true
    } catch (cause) {
      const code = codeOf(cause)
      if (code === "ENOENT") return true
      if (code !== "EBUSY") throw cause
      if ((await pidsIn(folder)).length > 0 && tries > removeTries / 4) return false
      await new Promise((resolve) => setTimeout(resolve, 25))
    }
  }
  return false
}

const exists = (file: string) =>
  fs.access(file).then(
    () => true,
    () => false
  )
/** Undefined: it is not there, or its process has just ended. */
const textIn = (file: string): Promise<string | undefined> =>
  fs.readFile(file, "utf8").catch((cause: unknown) => {
    const code = codeOf(cause)
    if (code === "ENOENT" || code === "ENODEV" || code === "ESRCH") return undefined
    throw cause
  })
const numberIn = async (file: string, none = Number.POSITIVE_INFINITY): Promise<number | undefined> => {
  const text = (await textIn(file))?.trim()
  if (text === undefined || text === "") return undefined
  const value = text === "max" ? none : Number(text)
  return value >= none ? Number.POSITIVE_INFINITY : value
}
const fieldIn = (text: string, name: string): number | undefined => {
  const found = new RegExp(`^${name} (\\d+)$`, "m").exec(text)?.[1]
  return found === undefined ? undefined : Number(found)
}
const pidsIn = async (folder: string): Promise<ReadonlyArray<string>> =>
  ((await textIn(path.join(folder, "cgroup.procs"))) ?? "").split("\n").filter((line) => line !== "")

/** All that it has begun, and they have begun, as far as they live (proc_pid_stat(5)). */
const descendants = async (procDir: string, pid: number): Promise<ReadonlyArray<number>> => {
  const children = new Map<number, Array<number>>()
  for (const name of await fs.readdir(procDir)) {
    if (!/^\d+$/.test(name)) continue
    const stat = (await textIn(path.join(procDir, name, "stat"))) ?? ""
    const parent = Number(/\) \S (\d+)/.exec(stat)?.[1] ?? Number.NaN)
    children.set(parent, [...(children.get(parent) ?? []), Number(name)])
  }
  const found: Array<number> = []
  for (let next = [pid]; next.length > 0; ) {
    next = next.flatMap((one) => children.get(one) ?? [])
    found.push(...next)
  }
  return found
}
