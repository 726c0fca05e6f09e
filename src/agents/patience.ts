/**
 * An end to every wait for the state store. People and programs wait here, and nobody says when the network swallows an
 * answer.
 */
import * as Effect from "effect/Effect"
import { StoreUnavailable } from "#src/store-unavailable.ts"

const patience = "10 seconds"

export const withPatience = <A, E, R>(
  self: Effect.Effect<A, E, R>
): Effect.Effect<A, E | StoreUnavailable, R> =>
  Effect.timeoutOrElse(self, {
    duration: patience,
    orElse: () => new StoreUnavailable({ message: `The state store did not answer within ${patience}` })
  })
