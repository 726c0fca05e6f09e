/**
 * Where on this machine control groups can be made for managed servers (cgroups(7); Linux documentation, "Control Group
 * v2" and "cgroup-v1"). Version 1 has a tree for each controller, and groups go to the top of what is mounted of it, or
 * below this process's own. Version 2 has one tree that has owners: root takes the top, others what they were given.
 *
 * In version 2 a group that holds processes cannot pass controllers on. Where the servers' groups are to be below this
 * process's own, its processes move one down, to `svc-control`. A unit of systemd with `DelegateSubgroup=svc-control`
 * begins there; one without could not be started again while servers run, so its group is left alone.
 */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { codeOf } from "../error-code.ts"

/** `io` is for counting what servers ask of the disks; it is one of version 2 only. */
export const controllers = ["memory", "cpu", "pids", "io"] as const
export type Controller = (typeof controllers)[number]

/** The parts of the kernel that are used, so that another folder can stand for them. */
export interface GroupSystem {
  readonly procDir: string
  readonly isRoot: boolean
  readonly write: (file: string, text: string) => Promise<void>
  readonly removeGroup: (folder: string) => Promise<void>
}
export const thisSystem: GroupSystem = {
  procDir: "/proc",
  isRoot: process.getuid?.() === 0,
  write: (file, text) => fs.writeFile(file, text),
  removeGroup: (folder) => fs.rmdir(folder)
}

export interface GroupPlace {
  readonly version: 1 | 2
  /** The folder in which the servers' groups are, for each controller that there is. */
  readonly folders: ReadonlyMap<Controller, string>
}
export type Placed =
  | { readonly usable: true; readonly place: GroupPlace }
  /** Why, and what to do about it. */
  | { readonly usable: false; readonly why: string; readonly hint: string }

/** Of the control plane's own processes, where they must not be among the servers'. */
const ownGroup = "svc-control"

const asRoot = "run the control plane as root, or on a host with cgroup v2 as a unit with Delegate=yes"
const byDelegation =
  "give the unit of systemd Delegate=yes, DelegateSubgroup=svc-control and KillMode=process; " +
  "by hand: systemd-run --user --scope -p Delegate=yes npm start"

/** Makes the folder of this name, whose groups can be limited. `look`: only answers whether it could. */
export const placeGroups = async (
  name: string,
  system: GroupSystem = thisSystem,
  how: "make" | "look" = "make"
): Promise<Placed> => {
  if (process.platform !== "linux")
    return { usable: false, why: "only Linux has control groups", hint: "run it on Linux" }
  try {
    const mounts = await mountsOf(system)
    const own = await ownGroups(system)
    return mounts.some((mount) => mount.version === 1 && mount.controllers.includes("memory"))
      ? await placeV1(name, mounts, own, how)
      : await placeV2(name, mounts, own, system, how)
  } catch (cause) {
    return unusable(cause, asRoot)
  }
}

const unusable = (cause: unknown, hint: string): Placed => ({
  usable: false,
  why: cause instanceof Error ? cause.message : String(cause),
  hint
})

interface Mount {
  readonly version: 1 | 2
  /** Which group of the tree is mounted. */
  readonly root: string
  readonly folder: string
  readonly controllers: ReadonlyArray<string>
}

/** proc_pid_mountinfo(5) */
const mountsOf = async ({ procDir }: GroupSystem): Promise<ReadonlyArray<Mount>> => {
  const text = await fs.readFile(path.join(procDir, "self/mountinfo"), "utf8")
  return text.split("\n").flatMap((line): ReadonlyArray<Mount> => {
    const [front = "", back = ""] = line.split(" - ")
    const [, , , root = "", folder = ""] = front.split(" ").map(unescaped)
    const [type, , options = ""] = back.split(" ")
    if (type === "cgroup") return [{ version: 1, root, folder, controllers: options.split(",") }]
    return type === "cgroup2" ? [{ version: 2, root, folder, controllers: [] }] : []
  })
}
const unescaped = (word: string) =>
  word.replaceAll(/\\([0-7]{3})/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 8)))

/** The folders of the groups of a process, by controller; in version 2 there is one, of no name. */
export const groupsOfProcess = async (
  pid: number,
  system: GroupSystem = thisSystem
): Promise<{ readonly version: 1 | 2; readonly folders: ReadonlyMap<string, string> }> => {
  const mounts = await mountsOf(system)
  const groups = await ownGroups(system, String(pid))
  const first = mounts.filter(({ version }) => version === 1)
  const version = first.some(({ controllers }) => controllers.includes("memory")) ? 1 : 2
  const folders = [...groups].flatMap(([controller, group]): ReadonlyArray<[string, string]> => {
    const mount =
      version === 1
        ? first.find(({ controllers }) => controllers.includes(controller))
        : mounts.find((one) => one.version === 2 && controller === "")
    const folder = mount === undefined ? undefined : folderOf(mount, group)
    return folder === undefined ? [] : [[controller, folder]]
  })
  return { version, folders: new Map(folders) }
}

/** The groups of a process by controller; that of version 2 has no name. */
const ownGroups = async ({ procDir }: GroupSystem, pid = "self"): Promise<ReadonlyMap<string, string>> => {
  const text = await fs.readFile(path.join(procDir, pid, "cgroup"), "utf8")
  return new Map(
    text.split("\n").flatMap((line) => {
      const [, names = "", group] = /^\d+:([^:]*):(.*)$/.exec(line) ?? []
      return group === undefined ? [] : names.split(",").map((one): [string, string] => [one, group])
    })
  )
}

/** Undefined: the group is outside of what is mounted. */
const folderOf = ({ root, folder }: Mount, group: string | undefined): string | undefined => {
  if (group === undefined) return undefined
  const below = path.relative(root, group)
  return below.startsWith("..") ? undefined : path.join(folder, below)
}

const placeV1 = async (
  name: string,
  mounts: ReadonlyArray<Mount>,
  own: ReadonlyMap<string, string>,
  how: "make" | "look"
): Promise<Placed> => {
  const folders = new Map<Controller, string>()
  for (const controller of controllers) {
    const mount = mounts.find((one) => one.version === 1 && one.controllers.includes(controller))
    if (mount === undefined) continue
    const parents = [mount.folder, folderOf(mount, own.get(controller))].filter((one) => one !== undefined)
    const made = await firstOf(parents, async (parent) => {
      const folder = path.join(parent, name)
      // First, for its reason: making a folder where nothing can be written fails for another.
      await fs.access(parent, fs.constants.W_OK)
      if (how === "make") await fs.mkdir(folder, { recursive: true })
      return folder
    })
    if (typeof made === "string") folders.set(controller, made)
    // Without the others there is still what matters most.
    else if (controller === "memory") return unusable(made, asRoot)
  }
  return { usable: true, place: { version: 1, folders } }
}

/** What the first of them that works comes to, or why the first did not. */
const firstOf = async (
  candidates: ReadonlyArray<string>,
  body: (one: string) => Promise<string>
): Promise<unknown> => {
  let reason: unknown
  for (const one of candidates) {
    try {
      return await body(one)
    } catch (cause) {
      reason ??= cause
    }
  }
  return reason
}

const placeV2 = async (
  name: string,
  mounts: ReadonlyArray<Mount>,
  own: ReadonlyMap<string, string>,
  system: GroupSystem,
  how: "make" | "look"
): Promise<Placed> => {
  const mount = mounts.find(({ version }) => version === 2)
  if (mount === undefined)
    return { usable: false, why: "no control groups are mounted", hint: "mount them at /sys/fs/cgroup" }
  const mine = folderOf(mount, own.get(""))
  const given = mine !== undefined && path.basename(mine) === ownGroup ? path.dirname(mine) : undefined
  if (given === undefined && !system.isRoot && mine?.endsWith(".service") === true) {
    const why = "the control plane's unit keeps its processes and its servers in one group"
    return { usable: false, why, hint: byDelegation }
  }
  const parent = given ?? (system.isRoot ? mount.folder : mine)
  if (parent === undefined)
    return { usable: false, why: "the control plane's own group is not mounted", hint: byDelegation }
  try {
    const available = await words(path.join(parent, "cgroup.controllers"))
    const wanted = controllers.filter((one) => available.includes(one))
    if (!wanted.includes("memory")) {
      const why = `the group ${parent} has no memory controller`
      return { usable: false, why, hint: byDelegation }
    }
    const folder = path.join(parent, name)
    if (how === "make") {
      await passOn(parent, wanted, parent === mine, system)
      await fs.mkdir(folder, { recursive: true })
      await passOn(folder, wanted, false, system)
    } else
      for (const file of [".", "cgroup.procs", "cgroup.subtree_control"])
        await fs.access(path.join(parent, file), fs.constants.W_OK)
    return { usable: true, place: { version: 2, folders: new Map(wanted.map((one) => [one, folder])) } }
  } catch (cause) {
    return unusable(cause, system.isRoot ? asRoot : byDelegation)
  }
}

const words = async (file: string): Promise<ReadonlyArray<string>> =>
  (await fs.readFile(file, "utf8")).split(/\s+/).filter((word) => word !== "")

/** Lets the groups in a group have these controllers. */
const passOn = async (
  group: string,
  wanted: ReadonlyArray<Controller>,
  isOwn: boolean,
  system: GroupSystem
): Promise<void> => {
  const file = path.join(group, "cgroup.subtree_control")
  const now = await words(file)
  const missing = wanted.filter((one) => !now.includes(one))
  if (missing.length === 0) return
  const text = missing.map((one) => `+${one}`).join(" ")
  try {
    await system.write(file, text)
  } catch (cause) {
    // It holds processes. Only those that are here with this one are its to move.
    if (codeOf(cause) !== "EBUSY" || !isOwn) throw cause
    await moveDown(group, system)
    await system.write(file, text)
  }
}

const moveDown = async (group: string, system: GroupSystem): Promise<void> => {
  const leaf = path.join(group, ownGroup)
  await fs.mkdir(leaf, { recursive: true })
  // Those that are moved may have begun others meanwhile.
  for (let round = 0; round < 5; round++) {
    const pids = await words(path.join(group, "cgroup.procs"))
    if (pids.length === 0) return
    for (const pid of pids) {
      await system.write(path.join(leaf, "cgroup.procs"), pid).catch((cause: unknown) => {
        if (codeOf(cause) !== "ESRCH") throw cause
      })
    }
  }
}
