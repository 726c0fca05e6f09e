/** Tells calls the time, all of them at once: a timer for each costs more than looking at it now and then. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import { supervise } from "#src/engine/supervise.ts"

/** How late a call may be ended. */
const every = "200 millis"

/** Takes what a call does at a time in milliseconds, and answers how to end that. The looks end with the scope. */
export const makeDeadlines = Effect.gen(function* () {
  const checks = new Set<(nowMs: number) => void>()
  // A process without calls is not woken five times a second.
  const isBusy = Latch.makeUnsafe()
  const look = Effect.gen(function* () {
    yield* isBusy.await
    yield* Effect.sleep(every)
    const now = yield* Clock.currentTimeMillis
    for (const check of checks) check(now)
    if (checks.size === 0) isBusy.closeUnsafe()
  })
  yield* Effect.forkScoped(Effect.forever(supervise("look for calls whose time is over", look)))
  return (check: (nowMs: number) => void) => {
    checks.add(check)
    isBusy.openUnsafe()
    return () => {
      checks.delete(check)
    }
  }
})
export type Deadlines = Effect.Success<typeof makeDeadlines>
