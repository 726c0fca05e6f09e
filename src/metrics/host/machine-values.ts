/** Measurements of what a server or a container uses of the machine. Pure. */
import { type Counted, perSecond } from "./rates.ts"
import { known, type Usage } from "./usage.ts"

/** What the machine has, for whatever has no limit. */
export interface MachineSize {
  readonly cpus: number
  readonly memoryBytes: number
}

export const usageCounters = (usage: Usage): Counted["counters"] => ({
  cpuMs: usage.cpuMs,
  reads: usage.reads,
  writes: usage.writes,
  cpuStalledUs: usage.cpuStalledUs,
  memoryStalledUs: usage.memoryStalledUs,
  ioStalledUs: usage.ioStalledUs,
  receivedBytes: usage.receivedBytes,
  transmittedBytes: usage.transmittedBytes
})

export const usageValues = (usage: Usage, size: MachineSize, before: Counted | undefined, now: Counted) => {
  const rate = (name: keyof ReturnType<typeof usageCounters>) => perSecond(name, before, now)
  const percent = (value: number | undefined, most: number) =>
    value === undefined || most <= 0 ? undefined : (value / most) * 100
  const cpuMs = rate("cpuMs")
  const cpus = Math.min(usage.cpus ?? Number.POSITIVE_INFINITY, size.cpus)
  const memoryLimit = Math.min(usage.memoryLimitBytes ?? Number.POSITIVE_INFINITY, size.memoryBytes)
  return known({
    "cpu.percent": percent(cpuMs, 1_000),
    "cpu.pressure": percent(cpuMs, 1_000 * cpus),
    "memory.used_bytes": usage.memoryBytes,
    "memory.limit_bytes": memoryLimit,
    "memory.pressure": percent(usage.memoryBytes, memoryLimit),
    "disk.read_iops": rate("reads"),
    "disk.write_iops": rate("writes"),
    "network.receive_bytes": rate("receivedBytes"),
    "network.transmit_bytes": rate("transmittedBytes"),
    "runtime.processes": usage.processes,
    "cpu.stalled_percent": percent(rate("cpuStalledUs"), 1e6),
    "memory.stalled_percent": percent(rate("memoryStalledUs"), 1e6),
    "disk.stalled_percent": percent(rate("ioStalledUs"), 1e6)
  })
}
