/** What goes on after the reconcile that began it: it belongs to no run, so neither a run's log nor its lease bind it. */
import * as Effect from "effect/Effect"
import { ExternalCallHook, ExternalCallLog, LeaseGuard } from "./external-call.ts"

export const inBackground = <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  self.pipe(
    Effect.provideService(ExternalCallHook, undefined),
    Effect.provideService(ExternalCallLog, undefined),
    Effect.provideService(LeaseGuard, Effect.void)
  )
