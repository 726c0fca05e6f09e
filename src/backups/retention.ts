/** Which base backups are kept, and which segments of the log: pure, so that it can be tried on thousands of histories. */
import type { BackupPolicy } from "#schemas/backup-policy.ts"
import { type BaseRange, isSegment, numberOf } from "./archive/log.ts"

const day = 86_400_000

export interface Kept {
  readonly bases: ReadonlySet<string>
  /** The log is kept from this number on; absent: nothing but the ranges. */
  readonly from: number | undefined
  /** What the kept base backups before it need, as first and last number. */
  readonly ranges: ReadonlyArray<readonly [number, number]>
}

/**
 * @param current whether the history goes on: its newest backup is then kept whatever the policy says, because
 * without it nothing could be restored
 */
export const kept = (
  bases: ReadonlyArray<BaseRange>,
  policy: BackupPolicy,
  now: Date,
  current: boolean,
  /** The last moment that the log of this history tells of. */
  until: Date
): Kept => {
  const sorted = [...bases].sort((a, b) => +a.consistentAt - +b.consistentAt)
  const keep = new Set<string>()
  const newest = sorted.at(-1)
  if (current && newest !== undefined) keep.add(newest.id)

  // From the last backup before the earliest moment that was promised.
  const promised = new Date(now.getTime() - policy.pitrDays * day)
  let from: number | undefined
  if (current || until >= promised) {
    const before = sorted.filter(({ consistentAt }) => consistentAt <= promised).at(-1)
    const needed = sorted.filter((base) => base === before || base.consistentAt > promised)
    for (const { id } of needed) keep.add(id)
    const first = needed[0] ?? (current ? newest : undefined)
    from = first === undefined ? undefined : numberOf(first.startSegment)
  }

  const classes: ReadonlyArray<readonly [number, (at: Date) => string]> = [
    [policy.dailyDays * day, (at) => at.toISOString().slice(0, 10)],
    [policy.weeklyWeeks * 7 * day, (at) => String(Math.floor((at.getTime() / day + 3) / 7))],
    [policy.monthlyMonths * 31 * day, (at) => at.toISOString().slice(0, 7)]
  ]
  for (const [age, period] of classes) {
    const seen = new Set<string>()
    for (const { id, consistentAt } of [...sorted].reverse()) {
      if (now.getTime() - consistentAt.getTime() > age || seen.has(period(consistentAt))) continue
      seen.add(period(consistentAt))
      keep.add(id)
    }
  }

  const ranges = sorted
    .filter(({ id }) => keep.has(id))
    .map(({ startSegment, stopSegment }) => [numberOf(startSegment), numberOf(stopSegment)] as const)
  return { bases: keep, from, ranges }
}

export const isKept = ({ from, ranges }: Kept, name: string): boolean => {
  // History files are few and small, and a timeline is of no use without them.
  if (!isSegment(name)) return true
  const number = numberOf(name)
  return (from !== undefined && number >= from) || ranges.some(([a, b]) => a <= number && number <= b)
}
