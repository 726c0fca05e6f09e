/** What a managed server uses of the machine: by its control group, or by its processes where it is in none. */
import * as path from "node:path"
import type { GroupPlace } from "#src/infra/host/control-group-place.ts"
import { groupUsage } from "./group-usage.ts"
import { kernelText } from "./kernel-text.ts"
import { cpuOf, type Process, processOf, processTable, processTree, treeUsage } from "./process-usage.ts"
import type { ServerHere } from "./servers-here.ts"
import { known, type Usage } from "./usage.ts"

/** For one look: all processes of the machine are read once, and only if they are needed. */
export const serverUsage = (procDir: string, place: GroupPlace | undefined) => {
  let table: ReturnType<typeof processTable> | undefined

  const groupOf = (key: string) => ({
    version: place?.version ?? 2,
    folders: new Map(
      [...(place?.folders ?? [])].map(([controller, folder]) => [controller, path.join(folder, key)])
    )
  })

  return ({ key, process }: ServerHere): Usage => {
    if (process === undefined) return {}
    const group = groupOf(key)
    const inside = (kernelText(path.join(group.folders.get("memory") ?? "", "cgroup.procs")) ?? "").split(
      "\n"
    )
    if (place === undefined || !inside.includes(String(process.pid))) {
      table ??= processTable(procDir)
      return treeUsage(procDir, processTree(process, table))
    }
    const usage = groupUsage(group)
    if (usage.cpuMs !== undefined) return usage
    // Version 1, and nobody counts processor time for the group.
    const processes = inside
      .map((pid) => processOf(procDir, Number(pid)))
      .filter((one): one is Process => one !== undefined)
    return { ...usage, ...known({ cpuMs: cpuOf(processes) }) }
  }
}
