/**
 * What the processes of a control group use together, as version 1 or 2 of control groups counts it (Linux documentation,
 * "Control Group v2" and "cgroup-v1").
 */
import * as path from "node:path"
import { field, kernelNumber, kernelText } from "./kernel-text.ts"
import { known, type Usage } from "./usage.ts"

/** The folder of a group for each controller that it has; in version 2 all of them are one. */
export interface Group {
  readonly version: 1 | 2
  readonly folders: ReadonlyMap<string, string>
}

/** A memory limit of version 1 that is higher than this is none. */
const noneAbove = 2 ** 60

export const groupUsage = (group: Group): Usage => (group.version === 2 ? second(group) : first(group))

const first = ({ folders }: Group): Usage => {
  const of = (controller: string, name: string) => {
    const folder = folders.get(controller)
    return folder === undefined ? undefined : path.join(folder, name)
  }
  const number = (controller: string, name: string) => {
    const file = of(controller, name)
    return file === undefined ? undefined : kernelNumber(file)
  }
  // The two are mounted together nearly everywhere.
  const nanoseconds = number("cpuacct", "cpuacct.usage") ?? number("cpu", "cpuacct.usage")
  const quota = number("cpu", "cpu.cfs_quota_us")
  const period = number("cpu", "cpu.cfs_period_us")
  const stat = of("memory", "memory.stat")
  const limit = number("memory", "memory.limit_in_bytes")
  const operations = of("blkio", "blkio.throttle.io_serviced")
  return known({
    cpuMs: nanoseconds === undefined ? undefined : nanoseconds / 1e6,
    cpus: quota === undefined || period === undefined || quota < 0 ? undefined : quota / period,
    memoryBytes: stat === undefined ? undefined : held(kernelText(stat), "rss"),
    memoryLimitBytes: limit === undefined || limit >= noneAbove ? undefined : limit,
    processes: number("pids", "pids.current"),
    ...(operations === undefined ? {} : serviced(kernelText(operations) ?? ""))
  })
}

const second = ({ folders }: Group): Usage => {
  const folder = folders.values().next().value ?? ""
  const text = (name: string) => kernelText(path.join(folder, name))
  const number = (name: string) => kernelNumber(path.join(folder, name))
  const microseconds = field(text("cpu.stat"), "usage_usec")
  const [quota, period] = (text("cpu.max") ?? "").split(/\s/).map(Number)
  return known({
    cpuMs: microseconds === undefined ? undefined : microseconds / 1000,
    // `max` is not a number, and neither is nothing.
    cpus: quota === undefined || period === undefined ? undefined : quota / period,
    memoryBytes: held(text("memory.stat"), "anon"),
    memoryLimitBytes: number("memory.max"),
    processes: number("pids.current"),
    ...operationsIn(text("io.stat")),
    cpuStalledUs: stalled(text("cpu.pressure")),
    memoryStalledUs: stalled(text("memory.pressure")),
    ioStalledUs: stalled(text("io.pressure"))
  })
}

const held = (stat: string | undefined, own: "anon" | "rss"): number | undefined => {
  const anonymous = field(stat, own)
  return anonymous === undefined ? undefined : anonymous + (field(stat, "shmem") ?? 0)
}

/** Lines of a device each; kernels that count nothing have none of them, and only a sum that is 0. */
const serviced = (text: string): Pick<Usage, "reads" | "writes"> => {
  const sum = (name: string) =>
    [...text.matchAll(new RegExp(`^\\d+:\\d+ ${name} (\\d+)$`, "gm"))].reduce(
      (all, [, one]) => all + Number(one),
      0
    )
  return /^\d+:\d+ /m.test(text) ? { reads: sum("Read"), writes: sum("Write") } : {}
}

/** A group whose processes have not touched a disk yet has an empty file. */
const operationsIn = (text: string | undefined): Pick<Usage, "reads" | "writes"> => {
  if (text === undefined) return {}
  const sum = (name: string) =>
    [...text.matchAll(new RegExp(`\\b${name}=(\\d+)`, "g"))].reduce((all, [, one]) => all + Number(one), 0)
  return { reads: sum("rios"), writes: sum("wios") }
}

const stalled = (text: string | undefined): number | undefined => {
  const found = /^some .*\btotal=(\d+)/m.exec(text ?? "")?.[1]
  return found === undefined ? undefined : Number(found)
}
