/** Ends a call from outside, whatever it waits for at that moment. A fiber that watches each call would cost as much as the call. */
import * as Effect from "effect/Effect"
import type { Exchange } from "./exchange.ts"
import type { CallFailed } from "./failure.ts"

export interface Cancellation {
  /** The first one counts. */
  readonly cancel: (why: CallFailed) => void
  /** Undefined: it goes on. */
  readonly why: () => CallFailed | undefined
  /** The request to an upstream that is under way from now on: ended as soon as the call is. */
  readonly covers: (exchange: Exchange) => void
  /** Ends other waits of the call, such as that before another try. */
  readonly during: <A, E, R>(wait: Effect.Effect<A, E, R>) => Effect.Effect<A, E | CallFailed, R>
}

export const makeCancellation = (): Cancellation => {
  let why: CallFailed | undefined
  let covered: Exchange | undefined
  let waiter: ((failed: Effect.Effect<never, CallFailed>) => void) | undefined
  const cancelled = Effect.callback<never, CallFailed>((resume) => {
    if (why === undefined) waiter = resume
    else resume(Effect.fail(why))
  })
  return {
    cancel: (reason) => {
      if (why !== undefined) return
      why = reason
      covered?.stop(reason)
      waiter?.(Effect.fail(reason))
    },
    why: () => why,
    covers: (exchange) => {
      covered = exchange
      if (why !== undefined) exchange.stop(why)
    },
    during: (wait) => Effect.raceFirst(wait, cancelled)
  }
}
