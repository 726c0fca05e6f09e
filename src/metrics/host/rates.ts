/** How much a counter has risen in a second, from two looks at it. Pure. */

/** Counters as one look has found them. Absent ones could not be read. */
export interface Counted {
  /** From a clock that never jumps, in milliseconds. */
  readonly atMs: number
  /** Counters of another identity have begun anew. */
  readonly identity: string
  readonly counters: Readonly<Record<string, number | undefined>>
}

/** Undefined: there was no look before, or the counter has begun anew since, or one of the looks could not read it. */
export const riseOf = (name: string, before: Counted | undefined, now: Counted): number | undefined => {
  const [from, to] = [before?.counters[name], now.counters[name]]
  if (from === undefined || to === undefined || before?.identity !== now.identity || to < from)
    return undefined
  return now.atMs > before.atMs ? to - from : undefined
}

export const perSecond = (name: string, before: Counted | undefined, now: Counted): number | undefined => {
  const rise = riseOf(name, before, now)
  return rise === undefined || before === undefined ? undefined : (rise * 1000) / (now.atMs - before.atMs)
}
