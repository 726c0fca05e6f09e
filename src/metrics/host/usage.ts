/** What a server or a container has used of the machine. What the machine does not count is absent. */
export interface Usage {
  /** Processor time since it began, in milliseconds. */
  readonly cpuMs?: number
  /** Processors that it may keep busy; absent: no limit. */
  readonly cpus?: number
  /** Anonymous and shared memory: what cannot be taken back without ending a process. The page cache is no part of it. */
  readonly memoryBytes?: number
  /** Absent: no limit. */
  readonly memoryLimitBytes?: number
  /** Processes and threads. */
  readonly processes?: number
  /** Requests to disks since it began. */
  readonly reads?: number
  readonly writes?: number
  /** Microseconds since it began in which some of its processes waited (Linux documentation, "PSI"). */
  readonly cpuStalledUs?: number
  readonly memoryStalledUs?: number
  readonly ioStalledUs?: number
  /** Bytes since it began. */
  readonly receivedBytes?: number
  readonly transmittedBytes?: number
}

/** Leaves out what is undefined. */
export const known = <A extends Record<string, number | undefined>>(
  values: A
): { readonly [Name in keyof A]?: number } => {
  const some: { [Name in keyof A]?: number } = {}
  for (const name in values) {
    const value = values[name]
    if (value !== undefined && Number.isFinite(value)) Object.assign(some, { [name]: value })
  }
  return some
}
