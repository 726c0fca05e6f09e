/**
 * What is done now and then, whoever else does it: counting, tidying, looking for what is over. A round that fails, or
 * meets a fault of the program, is told and ends nothing: the next one comes at its time.
 */
import * as Cause from "effect/Cause"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import { answered } from "#src/engine/answered.ts"

export interface Periodic {
  /** After "could not": "remove old rows". */
  readonly does: string
  /** Between the end of a round and the next, give or take a fifth, so that processes do not all come at once. */
  readonly every: Duration.Input
  /** A round that takes longer in milliseconds waits for an answer that will not come. Default: ten minutes. */
  readonly withinMs?: number
}

/** Runs rounds until the scope closes, the first at once. */
export const periodic = <A, E, R>(
  { does, every, withinMs = 600_000 }: Periodic,
  round: Effect.Effect<A, E, R>
): Effect.Effect<void, never, R | Scope.Scope> =>
  round.pipe(
    answered(does, withinMs),
    Effect.catchCause((cause) =>
      Cause.hasFails(cause)
        ? Effect.logWarning(`could not ${does}; trying again`, cause)
        : Effect.logError(`a fault of the program: could not ${does}; trying again`, cause)
    ),
    Effect.repeat(Schedule.spaced(every).pipe(Schedule.jittered)),
    Effect.forkScoped,
    Effect.asVoid
  )
