/** Loops that must not end. */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"

/** Failures of the store end no loop, and faults of the program do not either: they are logged, and after a pause it goes on. */
export const persistent = <A, E, R>(
  label: string,
  self: Effect.Effect<A, E, R>
): Effect.Effect<A, never, R> =>
  self.pipe(
    Effect.sandbox,
    Effect.tapError((cause) =>
      Cause.hasInterruptsOnly(cause)
        ? Effect.void
        : Cause.hasDies(cause)
          ? Effect.logError(`a fault of the program: the engine could not ${label}; trying again`, cause)
          : Effect.logWarning(`the engine could not ${label}; trying again`, cause)
    ),
    Effect.retry({
      while: (cause) => !Cause.hasInterruptsOnly(cause),
      schedule: Schedule.min([Schedule.exponential("100 millis"), Schedule.spaced("5 seconds")]).pipe(
        Schedule.jittered
      )
    }),
    Effect.catch(() => Effect.interrupt)
  )
