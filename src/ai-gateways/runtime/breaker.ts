/**
 * Leaves an upstream alone for a while once it has failed several times in a row. After that one call tries it; if that
 * fails too, the next while is twice as long.
 */

/** Failures in a row that open it. */
const most = 5
const firstRestMs = 10_000
const longestRestMs = 300_000

export interface Breaker {
  /** Whether a call may be made now. In a half-open state only one may, until it has told what became of it. */
  readonly admits: (nowMs: number) => boolean
  readonly isOpen: (nowMs: number) => boolean
  /** The answer has begun: others may call again, but one more failure opens it at once. */
  readonly begun: () => void
  readonly succeeded: () => void
  readonly failed: (nowMs: number) => void
  /** The call ended, and says nothing about the upstream. */
  readonly ended: () => void
}

export const makeBreaker = (): Breaker => {
  let failures = 0
  let openUntil: number | undefined
  let rest = firstRestMs
  let trying = false
  return {
    admits: (now) => {
      if (openUntil === undefined) return true
      if (now < openUntil || trying) return false
      trying = true
      return true
    },
    isOpen: (now) => openUntil !== undefined && (now < openUntil || !trying),
    begun: () => {
      if (openUntil !== undefined) failures = most - 1
      openUntil = undefined
      trying = false
    },
    succeeded: () => {
      failures = 0
      openUntil = undefined
      rest = firstRestMs
      trying = false
    },
    failed: (now) => {
      failures++
      if (openUntil !== undefined && trying) {
        trying = false
        rest = Math.min(rest * 2, longestRestMs)
        openUntil = now + rest
      } else if (openUntil === undefined && failures >= most) {
        openUntil = now + rest
      }
    },
    ended: () => {
      trying = false
    }
  }
}
