/**
 * Requests between two batches: the newest ones of each environment, and sums over all of them by minute. Both are
 * bounded, whatever the visitors of one environment do: of more requests than a batch takes, the newest are kept and all
 * are in the sums. What is in neither is counted as lost.
 */
import type { LoggedRequest } from "./log-format.ts"

/** Upper bounds of the time that requests took, in milliseconds; a last count is of those above. */
export const durationBoundsMs = [10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000] as const

export interface TallyBounds {
  /** Requests of one environment that a batch keeps. */
  readonly perEnvironment: number
  /** Requests that a batch keeps. */
  readonly requests: number
  /** Sums that a batch has: of an environment, a minute and a class. */
  readonly sums: number
}
const usual: TallyBounds = { perEnvironment: 200, requests: 5_000, sums: 10_000 }

export interface TalliedRequest extends LoggedRequest {
  /** When it came, in milliseconds since 1970. */
  readonly at: number
}

/** Sums over the requests of an environment that ended in one minute with statuses of one class. */
export interface MinuteSums {
  readonly environment: string
  /** The minute's first moment, in milliseconds since 1970. */
  readonly minute: number
  /** First digit of the status; 0: nobody answered. */
  readonly statusClass: number
  requests: number
  bytesIn: number
  bytesOut: number
  durationMs: number
  /** How many took so long, by {@link durationBoundsMs}. */
  readonly durations: Array<number>
}

export interface Batch {
  /** In the order in which they ended. */
  readonly requests: ReadonlyArray<TalliedRequest>
  readonly minutes: ReadonlyArray<MinuteSums>
  /** Requests that are in no sum. */
  readonly lost: number
}

export interface Tally {
  readonly add: (request: LoggedRequest, nowMs: number) => void
  /** What came since the last time; undefined: nothing did. */
  readonly take: () => Batch | undefined
}

export const makeTally = ({ perEnvironment, requests: most, sums }: TallyBounds = usual): Tally => {
  let kept = new Map<string, Array<TalliedRequest>>()
  let count = 0
  let minutes = new Map<string, MinuteSums>()
  let lost = 0

  const sumsOf = (environment: string, minute: number, statusClass: number) => {
    const key = `${environment} ${minute} ${statusClass}`
    const known = minutes.get(key)
    if (known !== undefined || minutes.size >= sums) return known
    const made: MinuteSums = {
      environment,
      minute,
      statusClass,
      requests: 0,
      bytesIn: 0,
      bytesOut: 0,
      durationMs: 0,
      durations: Array.from({ length: durationBoundsMs.length + 1 }, () => 0)
    }
    minutes.set(key, made)
    return made
  }

  return {
    add: (request, nowMs) => {
      const { environment, status, durationMs, bytesIn, bytesOut } = request
      const statusClass = status === null ? 0 : Math.min(5, Math.floor(status / 100))
      const of = sumsOf(environment, Math.floor(nowMs / 60_000) * 60_000, statusClass)
      if (of === undefined) {
        lost++
        return
      }
      of.requests++
      of.bytesIn += bytesIn
      of.bytesOut += bytesOut
      of.durationMs += durationMs
      const bucket = durationBoundsMs.findIndex((bound) => durationMs <= bound)
      const index = bucket === -1 ? durationBoundsMs.length : bucket
      of.durations[index] = (of.durations[index] ?? 0) + 1

      const mine = kept.get(environment) ?? []
      if (mine.length >= perEnvironment) mine.shift()
      else if (count >= most) return
      else count++
      mine.push({ ...request, at: nowMs - durationMs })
      kept.set(environment, mine)
    },
    take: () => {
      if (minutes.size === 0 && lost === 0) return undefined
      const batch = { requests: [...kept.values()].flat(), minutes: [...minutes.values()], lost }
      kept = new Map()
      count = 0
      minutes = new Map()
      lost = 0
      return batch
    }
  }
}
