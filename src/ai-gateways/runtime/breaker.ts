/**
 * Leaves an upstream alone for a while once it has failed several times in a row. After that one call tries it; if that
 * fails too, the next while is twice as long.
 *
 * A request may be made so that it fails. What may be due to the call therefore counts for its organization, which
 * leaves the upstream alone by itself; for everybody it counts once for each organization until an answer succeeds.
 */

/** Failures in a row that open a circuit. */
const most = 5
const firstRestMs = 10_000
const longestRestMs = 300_000
/** Organizations whose failures are kept; the ones that failed first go first. */
const mostOrganizations = 10_000

/** Whose doing a failure may be: the call's own, or nobody's but the upstream's. */
export type Fault = "call" | "upstream"

/** What one try tells. In a half-open state it is the trial, which no other try can end. */
export interface Pass {
  /** The answer has begun: others may call again, but one more failure opens the circuit at once. */
  readonly begun: () => void
  readonly succeeded: () => void
  /** `again`: a try of the same call has failed already. A call counts once, so that nobody's retries open it. */
  readonly failed: (nowMs: number, fault: Fault, again: boolean) => void
  /** The try ended, and says nothing about the upstream. */
  readonly ended: () => void
}

export interface Breaker {
  /** Undefined: no call of the organization may be made now. In a half-open state only one may, until it has told what became of it. */
  readonly admit: (orgId: string, nowMs: number) => Pass | undefined
  /** For everybody; with an organization also for it alone. */
  readonly isOpen: (nowMs: number, orgId?: string) => boolean
}

export const makeBreaker = (): Breaker => {
  const everybody = makeCircuit()
  const own = new Map<string, Circuit>()
  /** Organizations of which one failure counts for everybody already. */
  const counted = new Set<string>()
  const ownCircuit = (orgId: string): Circuit => {
    const known = own.get(orgId)
    if (known !== undefined) return known
    const [oldest] = own.keys()
    if (own.size >= mostOrganizations && oldest !== undefined) {
      own.delete(oldest)
      counted.delete(oldest)
    }
    const made = makeCircuit()
    own.set(orgId, made)
    return made
  }

  return {
    admit: (orgId, now) => {
      const shared = everybody.admit(now)
      if (shared === undefined) return undefined
      const circuit = own.get(orgId)
      const alone = circuit?.admit(now)
      if (circuit !== undefined && alone === undefined) {
        shared.ended()
        return undefined
      }
      return {
        begun: () => {
          shared.begun()
          alone?.begun()
        },
        succeeded: () => {
          shared.succeeded()
          counted.clear()
          own.delete(orgId)
        },
        failed: (at, fault, again) => {
          if (fault === "upstream") {
            shared.failed(at, again)
            alone?.ended()
            return
          }
          const pass = alone ?? ownCircuit(orgId).admit(at)
          pass?.failed(at, again)
          if (counted.has(orgId)) return shared.ended()
          counted.add(orgId)
          shared.failed(at, again)
        },
        ended: () => {
          shared.ended()
          alone?.ended()
        }
      }
    },
    isOpen: (now, orgId) =>
      everybody.isOpen(now) || (orgId !== undefined && own.get(orgId)?.isOpen(now) === true)
  }
}

interface CircuitPass extends Pick<Pass, "begun" | "succeeded" | "ended"> {
  readonly failed: (nowMs: number, again: boolean) => void
}

interface Circuit {
  readonly admit: (nowMs: number) => CircuitPass | undefined
  readonly isOpen: (nowMs: number) => boolean
}

const makeCircuit = (): Circuit => {
  let failures = 0
  let openUntil: number | undefined
  let rest = firstRestMs
  let trial: CircuitPass | undefined
  const makePass = (): CircuitPass => {
    const ended = () => {
      if (trial === pass) trial = undefined
    }
    const pass: CircuitPass = {
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
