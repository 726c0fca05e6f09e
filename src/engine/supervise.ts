/**
 * Loops that must not end. Failures of the store end none, and neither do faults of the program, nor interruptions that
 * were meant for something else: they are logged, and after a pause the loop goes on. (When the fiber itself is
 * interrupted, nothing of this runs any more.) The label says what it does: "could not <label>; trying again".
 */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"

export const supervise = <A, E, R>(label: string, self: Effect.Effect<A, E, R>): Effect.Effect<A, never, R> =>
  self.pipe(
    Effect.sandbox,
    Effect.tapError((cause) =>
      Cause.hasFails(cause)
        ? Effect.logWarning(`could not ${label}; trying again`, cause)
        : Effect.logError(`a fault of the program: could not ${label}; trying again`, cause)
    ),
    Effect.retry(
      Schedule.min([Schedule.exponential("100 millis"), Schedule.spaced("5 seconds")]).pipe(Schedule.jittered)
    ),
    Effect.orDie
  )
