/**
 * How long ago something was. Somebody may set the wall clock, and the monotonic clock stands still while a machine
 * sleeps; so there are two answers.
 */
import type * as Clock from "effect/Clock"

export interface ClockReading {
  readonly wall: number
  readonly steady: bigint
}

export const readClocks = (clock: Clock.Clock): ClockReading => ({
  wall: clock.currentTimeMillisUnsafe(),
  steady: clock.monotonicTimeNanosUnsafe()
})

/** Time in which this process could do something. */
export const runningMs = (clock: Clock.Clock, then: ClockReading): number =>
  Number(clock.monotonicTimeNanosUnsafe() - then.steady) / 1e6

/** Time that may have passed for others: when in doubt, the longer. */
export const sinceMs = (clock: Clock.Clock, then: ClockReading): number =>
  Math.max(clock.currentTimeMillisUnsafe() - then.wall, runningMs(clock, then))
