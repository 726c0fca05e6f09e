/**
 * What processes use, where the machine has no control groups for them: from the table of all processes, read once for all
 * servers (proc_pid_stat(5), proc_pid_status(5)).
 */
import * as os from "node:os"
import * as path from "node:path"
import { field, kernelNames, kernelText } from "./kernel-text.ts"
import { known, type Usage } from "./usage.ts"

export interface Process {
  readonly pid: number
  readonly parent: number
  /** Its own processor time and that of its children which have ended, in milliseconds. */
  readonly cpuMs: number
  readonly threads: number
  /** Since the machine began, in clock ticks: with the pid it tells a process from every other one until the next boot. */
  readonly began: number
}

/** Of user space, on every platform of Linux (sysconf(3), `_SC_CLK_TCK`). */
const ticksPerSecond = 100

/** Undefined: there is none. */
export const processOf = (procDir: string, pid: number): Process | undefined => {
  const text = kernelText(path.join(procDir, String(pid), "stat"))
  // The name of the program may hold anything, also brackets.
  const fields = text?.slice(text.lastIndexOf(")") + 2).split(" ")
  if (fields === undefined || fields.length < 20 || /^[ZX]$/.test(fields[0] ?? "")) return undefined
  const number = (index: number) => Number(fields[index])
  return {
    pid,
    parent: number(1),
    cpuMs: ((number(11) + number(12) + number(13) + number(14)) * 1000) / ticksPerSecond,
    threads: number(17),
    began: number(19)
  }
}

/** All processes, by the one that began them. */
export const processTable = (procDir: string): ReadonlyMap<number, ReadonlyArray<Process>> => {
  const children = new Map<number, Array<Process>>()
  for (const name of kernelNames(procDir)) {
    const one = /^\d+$/.test(name) ? processOf(procDir, Number(name)) : undefined
    if (one === undefined) continue
    const siblings = children.get(one.parent)
    if (siblings === undefined) children.set(one.parent, [one])
    else siblings.push(one)
  }
  return children
}

/** A process and all that it began, as far as they live. */
export const processTree = (
  first: Process,
  table: ReadonlyMap<number, ReadonlyArray<Process>>
): ReadonlyArray<Process> => {
  const found = [first]
  for (const one of found) found.push(...(table.get(one.pid) ?? []))
  return found
}

export const cpuOf = (processes: ReadonlyArray<Process>): number =>
  processes.reduce((all, { cpuMs }) => all + cpuMs, 0)

/** What the processes of a server use together. Memory that they share is counted once, as much as the largest has of it. */
export const treeUsage = (procDir: string, processes: ReadonlyArray<Process>): Usage => {
  let [own, shared] = [0, 0]
  for (const { pid } of processes) {
    const status = kernelText(path.join(procDir, String(pid), "status"))
    own += (field(status, "RssAnon") ?? 0) * 1024
    shared = Math.max(shared, (field(status, "RssShmem") ?? 0) * 1024)
  }
  return known({
    cpuMs: cpuOf(processes),
    memoryBytes: own + shared,
    processes: processes.reduce((all, { threads }) => all + threads, 0)
  })
}

/** Seconds since the process began. */
export const ageSeconds = (procDir: string, { began }: Process): number | undefined => {
  const up = Number(kernelText(path.join(procDir, "uptime"))?.split(" ")[0] ?? os.uptime())
  return Number.isFinite(up) ? Math.max(0, up - began / ticksPerSecond) : undefined
}

const boots = new Map<string, string>()
/** Of this run of the machine (random(4)). */
const bootOf = (procDir: string): string => {
  const boot = boots.get(procDir) ?? kernelText(path.join(procDir, "sys/kernel/random/boot_id"))?.trim() ?? ""
  boots.set(procDir, boot)
  return boot
}

/** What tells a process from every other one that this machine has run. */
export const identityOf = (procDir: string, { pid, began }: Process): string =>
  `${bootOf(procDir)}/${pid}/${began}`
