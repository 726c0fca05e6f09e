/** What is much to make or to load, and is made when somebody first asks for it. */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"

/**
 * Once for all who ask, and it goes on when whoever asked first has gone. A failure is theirs who wait for it: the next one
 * tries again.
 */
export const madeOnce = Effect.fnUntraced(function* <A, R>(make: Effect.Effect<A, never, R>) {
  let making: Fiber.Fiber<A> | undefined
  yield* Effect.addFinalizer(() => (making === undefined ? Effect.void : Fiber.interrupt(making)))
  return Effect.flatMap(Effect.context<R>(), (context) => {
    if (making === undefined) {
      const fiber = Effect.runForkWith(context)(make)
      making = fiber
      fiber.addObserver((exit) => {
        if (Exit.isFailure(exit) && making === fiber) making = undefined
      })
    }
    return Fiber.join(making)
  })
})
