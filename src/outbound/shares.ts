/**
 * What a process has a bounded number of, such as requests under way, and which organization holds how many.
 *
 * An organization may hold as many as are free beside it (dynamic thresholds: Choudhury and Hahne, "Dynamic queue length
 * thresholds in a shared-memory packet switch", 1998). One alone gets half of all, two get a third each, and whoever
 * comes next finds some free, even when everybody else holds theirs for hours.
 */

/** How many more each may take. */
export interface Rooms {
  /** By organization: those that hold some now. */
  readonly holders: ReadonlyMap<string, { readonly held: number; readonly room: number }>
  readonly others: number
}

export interface Shares {
  readonly free: () => number
  readonly room: (org: string) => number
  /** `promised`: so many may be about to be taken, and any one of them may take all of those. */
  readonly rooms: (promised?: number) => Rooms
  readonly take: (org: string, amount?: number) => void
  readonly giveBack: (org: string, amount?: number) => void
}

/** `mostOfOne`: an organization gets no more, however many are free. */
export const makeShares = (total: number, mostOfOne: number = total): Shares => {
  const held = new Map<string, number>()
  let free = total
  const room = (org: string, promised = 0) => {
    const has = (held.get(org) ?? 0) + promised
    return Math.max(0, Math.min(mostOfOne - has, Math.ceil((free - promised - has) / 2)))
  }
  const change = (org: string, by: number) => {
    free -= by
    const has = (held.get(org) ?? 0) + by
    if (has === 0) held.delete(org)
    else held.set(org, has)
  }
  return {
    free: () => free,
    room: (org) => room(org),
    rooms: (promised = 0) => ({
      holders: new Map([...held].map(([org, has]) => [org, { held: has, room: room(org, promised) }])),
      others: room("", promised)
    }),
    take: (org, amount = 1) => change(org, amount),
    giveBack: (org, amount = 1) => change(org, -amount)
  }
}
