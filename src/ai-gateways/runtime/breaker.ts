/**
 * Leaves an upstream alone for a while once it has failed several times in a row. After that one call tries it; if that
 * fails too, the next while is twice as long.
 */

/** Failures in a row that open it. */
const most = 5
const firstRestMs = 10_000
const longestRestMs = 300_000

/** What one try tells. In a half-open state it is the trial, which no other try can end. */
export interface Pass {
  /** The answer has begun: others may call again, but one more failure opens it at once. */
  readonly begun: () => void
  readonly succeeded: () => void
  /** `again`: a try of the same call has failed already. A call counts once, so that nobody's retries open it. */
  readonly failed: (nowMs: number, again: boolean) => void
  /** The try ended, and says nothing about the upstream. */
  readonly ended: () => void
}

export interface Breaker {
  /** Undefined: no call may be made now. In a half-open state only one may, until it has told what became of it. */
  readonly admit: (nowMs: number) => Pass | undefined
  readonly isOpen: (nowMs: number) => boolean
}

export const makeBreaker = (): Breaker => {
  let failures = 0
  let openUntil: number | undefined
  let rest = firstRestMs
  let trial: Pass | undefined
  const makePass = (): Pass => {
    const ended = () => {
      if (trial === pass) trial = undefined
    }
    const pass: Pass = {
      ended,
      begun: () => {
        if (trial !== pass) return
        failures = most - 1
        openUntil = undefined
        ended()
      },
      succeeded: () => {
        failures = 0
        openUntil = undefined
        rest = firstRestMs
        trial = undefined
      },
      failed: (now, again) => {
        if (trial === pass) {
          ended()
          rest = Math.min(rest * 2, longestRestMs)
          openUntil = now + rest
        } else if (openUntil === undefined && !again) {
          failures++
          if (failures >= most) openUntil = now + rest
        }
      }
    }
    return pass
  }
  return {
    admit: (now) => {
      if (openUntil === undefined) return makePass()
      if (now < openUntil || trial !== undefined) return undefined
      trial = makePass()
      return trial
    },
    isOpen: (now) => openUntil !== undefined && (now < openUntil || trial === undefined)
  }
}
