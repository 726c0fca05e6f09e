/**
 * The log of a database as a list of its segments, and what the store answers of it, in the plainest way: what the
 * store says is compared with this, and what is concluded from it is tried on it.
 */
import * as log from "#src/backups/archive/log.ts"

export interface LogFile {
  /** Name of a segment, or of a history file. */
  readonly name: string
  readonly finishedAt: Date | null
  readonly flushedAt?: Date | null
}

const place = ({ name }: LogFile) => name.slice(8)

/** One step for each number, as a recovery takes them. */
export const runsOf = (files: ReadonlyArray<LogFile>): ReadonlyArray<log.Run> => {
  const segments = files.filter(({ name }) => log.isSegment(name))
  const begins = new Map<number, number>()
  for (const { name } of segments) {
    const timeline = log.timelineOf(name)
    begins.set(timeline, Math.min(begins.get(timeline) ?? Number.POSITIVE_INFINITY, log.numberOf(name)))
  }
  const followed = segments
    .filter(
      ({ name }) =>
        ![...begins].some(([later, begin]) => later > log.timelineOf(name) && begin <= log.numberOf(name))
    )
    .sort((a, b) => (place(a) < place(b) ? -1 : 1))
  const runs: Array<log.Run> = []
  for (const { name, finishedAt, flushedAt = null } of followed) {
    const last = runs.at(-1)
    const goesOn =
      last !== undefined &&
      log.timelineOf(last.last) === log.timelineOf(name) &&
      log.numberOf(last.last) + 1 === log.numberOf(name)
    if (!goesOn) runs.push({ first: name, last: name, finishedAt, flushedAt })
    else {
      const flushed = Math.max(+(last.flushedAt ?? 0), +(flushedAt ?? 0))
      runs[runs.length - 1] = {
        ...last,
        last: name,
        finishedAt,
        flushedAt: flushed === 0 ? null : new Date(flushed)
      }
    }
  }
  return runs
}

export const windowsOf = (bases: ReadonlyArray<log.BaseRange>, files: ReadonlyArray<LogFile>) =>
  log.windowsOf(bases, runsOf(files))

export const chainOf = (base: log.BaseRange, files: ReadonlyArray<LogFile>) =>
  log.chainsOf([base], runsOf(files)).get(base.id)

/** Segments between two places, on a timeline and on later ones. */
export const namesOf = (
  files: ReadonlyArray<LogFile>,
  { timeline, first, last }: { readonly timeline: number; readonly first: string; readonly last: string }
) =>
  files
    .filter((one) => log.isSegment(one.name) && log.timelineOf(one.name) >= timeline)
    .filter((one) => place(one) >= first && place(one) <= last)
    .map(({ name }) => name)
    .sort((a, b) => (a.slice(8) + a < b.slice(8) + b ? -1 : 1))

export const firstAfter = (
  files: ReadonlyArray<LogFile>,
  range: { readonly timeline: number; readonly first: string; readonly last: string },
  at: Date
) => {
  const names = new Set(namesOf(files, range))
  return files
    .filter(({ name, finishedAt }) => names.has(name) && +(finishedAt ?? 0) - log.clockMargin > +at)
    .map(place)
    .sort()[0]
}

export const recoveryTo = (
  bases: ReadonlyArray<log.BaseRange>,
  files: ReadonlyArray<LogFile>,
  at: Date
): { readonly base: log.BaseRange; readonly files: ReadonlyArray<string> } | undefined => {
  const chain = log.chainTo(bases, runsOf(files), at)
  if (chain === undefined) return undefined
  const { base, last } = chain
  const range = { timeline: base.timeline, first: base.startSegment.slice(8), last: last.slice(8) }
  const enough = firstAfter(files, range, at) ?? range.last
  const stop = base.stopSegment.slice(8)
  return {
    base,
    files: [
      ...files.filter(({ name }) => log.isHistory(name)).map(({ name }) => name),
      ...namesOf(files, { ...range, last: [enough, stop].sort()[1] ?? stop })
    ]
  }
}
