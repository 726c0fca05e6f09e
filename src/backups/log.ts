/**
 * Segments of the write-ahead log by their names, and which moments they allow a recovery to. A name is a timeline and
 * a number of eight hexadecimal digits each in two parts, of which the last counts the segments of 4 GiB.
 */

export interface LogFile {
  /** Name of a segment, or of a history file such as `00000002.history`. */
  readonly name: string
  /** When it was written last; absent for history files. */
  readonly finishedAt: Date | null
  /** Every commit before this moment is in it or before it, by a flush that ended with it. */
  readonly flushedAt?: Date | null
}

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

/** The log that follows on a base backup without a gap. */
export interface Chain {
  readonly base: BaseRange
  /** Every segment from the backup's first to the last without a gap, and the history files. */
  readonly files: ReadonlyArray<LogFile>
  /** Number of the last segment. */
  readonly end: number
  /** Every commit before this moment is in it; before the backup's own moment: it cannot be used. */
  readonly to: Date
}

/**
 * Follows the newest timeline that has begun at each number, as a recovery does. None: the segments that the backup
 * itself needs are not all there.
 */
export const chainOf = (base: BaseRange, log: ReadonlyArray<LogFile>): Chain | undefined => {
  const byNumber = new Map<number, Map<number, LogFile>>()
  const begins = new Map<number, number>()
  for (const file of log) {
    if (!isSegment(file.name)) continue
    const [number, timeline] = [numberOf(file.name), timelineOf(file.name)]
    if (timeline < base.timeline) continue
    const there = byNumber.get(number) ?? new Map<number, LogFile>()
    byNumber.set(number, there.set(timeline, file))
    begins.set(timeline, Math.min(begins.get(timeline) ?? number, number))
  }
  const timelines = [...begins].sort(([a], [b]) => b - a)
  const needed = (number: number) => timelines.find(([, begin]) => begin <= number)?.[0] ?? base.timeline

  const first = numberOf(base.startSegment)
  const files: Array<LogFile> = []
  let end = first - 1
  let last: LogFile | undefined
  let flushed = 0
  for (let number = first; ; number++) {
    const there = byNumber.get(number)
    const file = there?.get(needed(number))
    if (there === undefined || file === undefined) break
    files.push(...there.values())
    last = file
    flushed = Math.max(flushed, file.flushedAt?.getTime() ?? 0)
    end = number
  }
  if (last === undefined || end < numberOf(base.stopSegment)) return undefined
  const written = (last.finishedAt?.getTime() ?? 0) - clockMargin
  const history = log.filter(({ name }) => isHistory(name))
  return { base, files: [...history, ...files], end, to: new Date(Math.max(written, flushed)) }
}

/** The moments that can be recovered, oldest first. */
export const windowsOf = (
  bases: ReadonlyArray<BaseRange>,
  log: ReadonlyArray<LogFile>
): ReadonlyArray<Window> => {
  const windows: Array<{ from: Date; to: Date }> = []
  for (const base of [...bases].sort((a, b) => +a.consistentAt - +b.consistentAt)) {
    const to = chainOf(base, log)?.to
    if (to === undefined || to < base.consistentAt) continue
    const last = windows.at(-1)
    if (last !== undefined && last.to >= base.consistentAt) last.to = new Date(Math.max(+last.to, +to))
    else windows.push({ from: base.consistentAt, to })
  }
  return windows
}

/** The newest base backup from which a moment can be reached, and what of the log that takes. */
export const recoveryTo = (
  bases: ReadonlyArray<BaseRange>,
  log: ReadonlyArray<LogFile>,
  at: Date
): { readonly base: BaseRange; readonly files: ReadonlyArray<string> } | undefined => {
  const candidates = bases.filter(({ consistentAt }) => consistentAt <= at)
  for (const base of candidates.sort((a, b) => +b.consistentAt - +a.consistentAt)) {
    const chain = chainOf(base, log)
    if (chain === undefined || chain.to < at) continue
    // The first segment that was written well after the moment holds a commit to stop at, or there is none.
    const enough = chain.files.find(
      ({ finishedAt }) => finishedAt !== null && finishedAt.getTime() - clockMargin > at.getTime()
    )
    const end = Math.max(enough === undefined ? chain.end : numberOf(enough.name), numberOf(base.stopSegment))
    return {
      base,
      files: chain.files
        .filter(({ name }) => isHistory(name) || numberOf(name) <= end)
        .map(({ name }) => name)
    }
  }
  return undefined
}
