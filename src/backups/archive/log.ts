/**
 * Segments of the write-ahead log by their names, and which moments they allow a recovery to. A name is a timeline and
 * a number of eight hexadecimal digits each in two parts, of which the last counts the segments of 4 GiB.
 */

/** What a base backup needs of the log, and from when on it can be used. */
export interface BaseRange {
  readonly id: string
  readonly startSegment: string
  readonly stopSegment: string
  readonly timeline: number
  readonly consistentAt: Date
}

export interface Window {
  readonly from: Date
  readonly to: Date
}

/** A segment has 4 MiB in every managed server (see how its folder is made). */
const segmentsPerFile = 1_024
/**
 * A commit tells its time before it is written, and a segment's time is that of its last write. A commit so much
 * older than that is in the segment or before it, never after.
 */
export const clockMargin = 2_000

const segmentName = /^[0-9A-F]{24}$/
const historyName = /^[0-9A-F]{8}\.history$/
export const isSegment = (name: string): boolean => segmentName.test(name)
export const isHistory = (name: string): boolean => historyName.test(name)
/** Position in the log, whatever the timeline. */
export const numberOf = (name: string): number =>
  Number.parseInt(name.slice(8, 16), 16) * segmentsPerFile + Number.parseInt(name.slice(16, 24), 16)
export const timelineOf = (name: string): number => Number.parseInt(name.slice(0, 8), 16)

/** Segments of one timeline without a gap. */
export interface Run {
  readonly first: string
  readonly last: string
  /** When the last one was written last. */
  readonly finishedAt: Date | null
  /** Every commit before this moment is in it or before it, by a flush of one of its segments. */
  readonly flushedAt: Date | null
}

/** The log that follows on a base backup without a gap. */
export interface Chain {
  readonly base: BaseRange
  /** Number of the last segment, and its name. */
  readonly end: number
  readonly last: string
  /** Every commit before this moment is in it; before the backup's own moment: it cannot be used. */
  readonly to: Date
}

/**
 * Of each base backup, if the segments that it itself needs are all there. The runs are those that a recovery follows,
 * in their order: at each number that of the newest timeline that has begun there.
 */
export const chainsOf = (
  bases: ReadonlyArray<BaseRange>,
  runs: ReadonlyArray<Run>
): ReadonlyMap<string, Chain> => {
  /** How far each run leads, with those that follow on it: from the last to the first. */
  const ends: Array<Omit<Chain, "base">> = []
  for (let at = runs.length - 1; at >= 0; at--) {
    const run = runs[at]
    if (run === undefined) continue
    const after = runs[at + 1]
    const further =
      after !== undefined && numberOf(after.first) === numberOf(run.last) + 1 ? ends[at + 1] : undefined
    const flushed = run.flushedAt?.getTime() ?? 0
    ends[at] =
      further === undefined
        ? {
            end: numberOf(run.last),
            last: run.last,
            to: new Date(Math.max((run.finishedAt?.getTime() ?? 0) - clockMargin, flushed))
          }
        : { ...further, to: new Date(Math.max(+further.to, flushed)) }
  }
  const chains = new Map<string, Chain>()
  let at = 0
  for (const base of [...bases].sort((a, b) => numberOf(a.startSegment) - numberOf(b.startSegment))) {
    const first = numberOf(base.startSegment)
    while (at < runs.length && numberOf(runs[at]?.last ?? "") < first) at++
    const [run, end] = [runs[at], ends[at]]
    if (run === undefined || end === undefined || numberOf(run.first) > first) continue
    if (timelineOf(run.first) < base.timeline || end.end < numberOf(base.stopSegment)) continue
    chains.set(base.id, { base, ...end })
  }
  return chains
}

/** The moments that can be recovered, oldest first. */
export const windowsOf = (
  bases: ReadonlyArray<BaseRange>,
  runs: ReadonlyArray<Run>
): ReadonlyArray<Window> => {
  const windows: Array<{ from: Date; to: Date }> = []
  const chains = chainsOf(bases, runs)
  for (const base of [...bases].sort((a, b) => +a.consistentAt - +b.consistentAt)) {
    const to = chains.get(base.id)?.to
    if (to === undefined || to < base.consistentAt) continue
    const last = windows.at(-1)
    if (last !== undefined && last.to >= base.consistentAt) last.to = new Date(Math.max(+last.to, +to))
    else windows.push({ from: base.consistentAt, to })
  }
  return windows
}

/** The newest base backup from which a moment can be reached, with what follows on it. */
export const chainTo = (
  bases: ReadonlyArray<BaseRange>,
  runs: ReadonlyArray<Run>,
  at: Date
): Chain | undefined => {
  const chains = chainsOf(bases, runs)
  return bases
    .filter(({ consistentAt }) => consistentAt <= at)
    .sort((a, b) => +b.consistentAt - +a.consistentAt)
    .flatMap(({ id }) => chains.get(id) ?? [])
    .find(({ to }) => to >= at)
}
