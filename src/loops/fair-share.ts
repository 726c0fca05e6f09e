/**
 * What a process has a bounded number of, such as requests under way, and which organization (or other owner) holds how
 * many. The one rule of fairness between organizations for everything that runs beside the engine.
 *
 * With `reserve` an organization may hold as many as are free beside it (dynamic thresholds: Choudhury and Hahne, "Dynamic
 * queue length thresholds in a shared-memory packet switch", 1998). One alone gets half of all, two get a third each,
 * and whoever comes next finds some free, even when everybody else holds theirs for hours. Without it one may hold all
 * that is free, which suits small totals, where half would stand idle.
 */

/** How many more each may take. */
export interface Rooms {
  /** By organization: those that hold some now. */
  readonly holders: ReadonlyMap<string, { readonly held: number; readonly room: number }>
  /** Each of the organizations that hold none. */
  readonly others: number
}

export interface FairShare {
  readonly free: () => number
  readonly held: (org: string) => number
  readonly room: (org: string) => number
  /** `promised`: so many may be about to be taken, and any one of them may take all of those. */
  readonly rooms: (promised?: number) => Rooms
  readonly take: (org: string, amount?: number) => void
  readonly giveBack: (org: string, amount?: number) => void
}

export interface FairShareOptions {
  /** An organization gets no more, however many are free. Default: the total. */
  readonly mostOfOne?: number | undefined
  /** Whether some stay free for organizations that hold none. Default: true. */
  readonly reserve?: boolean
}

export const makeFairShare = (
  total: number,
  { mostOfOne = total, reserve = true }: FairShareOptions = {}
): FairShare => {
  const holders = new Map<string, number>()
  let free = total
  const held = (org: string) => holders.get(org) ?? 0
  /** For one that holds so many, when others may take `promised`. */
  const roomOf = (held: number, promised: number) => {
    const has = held + promised
    const left = free - promised
    return Math.max(0, Math.min(mostOfOne - has, reserve ? Math.ceil((left - has) / 2) : left))
  }
  const change = (org: string, by: number) => {
    free -= by
    const has = held(org) + by
    if (has === 0) holders.delete(org)
    else holders.set(org, has)
  }
  return {
    free: () => free,
    held,
    room: (org) => roomOf(held(org), 0),
    rooms: (promised = 0) => ({
      holders: new Map([...holders].map(([org, has]) => [org, { held: has, room: roomOf(has, promised) }])),
      others: roomOf(0, promised)
    }),
    take: (org, amount = 1) => change(org, amount),
    giveBack: (org, amount = 1) => change(org, -amount)
  }
}
