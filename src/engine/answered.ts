/**
 * An end to every wait for the state store. Its server ends statements that take long, but nobody tells this process
 * when the network between them swallows the answer: a loop that waited for one would stand still for ever. What was
 * not answered in time counts as failed, and the loop goes on.
 */
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { StoreUnavailable } from "#src/store-unavailable.ts"

/** Longer than the server lets a statement run (30 s): what is only slow is waited for. */
export const patienceMs = 60_000

/**
 * `answered("claim webhooks")(effect)`: fails with `StoreUnavailable` after `ms`. What was asked runs in a fiber of its
 * own, which is interrupted then and not waited for: the end of a transaction cannot be interrupted, and its answer may
 * never come.
 */
export const answered =
  (what: string, ms: number = patienceMs) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E | StoreUnavailable, R> =>
    Effect.flatMap(Effect.forkDetach(self), (asked) =>
      Fiber.join(asked).pipe(
        Effect.timeoutOrElse({
          duration: ms,
          orElse: () =>
            Effect.fail(
              new StoreUnavailable({
                message: `The state store was asked to ${what} and did not answer in time`
              })
            )
        }),
        Effect.onExit(() => Effect.sync(() => asked.interruptUnsafe()))
      )
    )
