/**
 * How long ago something was, for decisions that must not be wrong: somebody may set the wall clock, and the monotonic
 * clock stands still while a machine sleeps. The longer of the two times counts.
 */
import type * as Clock from "effect/Clock"

export interface Moment {
  readonly wall: number
  readonly steady: bigint
}

export const moment = (clock: Clock.Clock): Moment => ({
  wall: clock.currentTimeMillisUnsafe(),
  steady: clock.monotonicTimeNanosUnsafe()
})

export const sinceMs = (clock: Clock.Clock, then: Moment): number =>
  Math.max(
    clock.currentTimeMillisUnsafe() - then.wall,
    Number(clock.monotonicTimeNanosUnsafe() - then.steady) / 1e6
  )
