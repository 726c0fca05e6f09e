/** Tells calls the time, all of them at once: a timer for each costs more than looking at it now and then. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { periodic } from "#src/loops/periodic.ts"

/** How late a call may be ended. */
const every = "200 millis"

/** Takes what a call does at a time in milliseconds, and answers how to end that. The looks end with the scope. */
export const makeDeadlines = Effect.gen(function* () {
  const checks = new Set<(nowMs: number) => void>()
  yield* periodic(
    { does: "look for calls whose time is over", every, withinMs: 10_000 },
    Effect.map(Clock.currentTimeMillis, (now) => {
      for (const check of checks) check(now)
    })
  )
  return (check: (nowMs: number) => void) => {
    checks.add(check)
    return () => {
      checks.delete(check)
    }
  }
})
export type Deadlines = Effect.Success<typeof makeDeadlines>
