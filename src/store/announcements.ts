/** Being told that there is something to do, for loops that look for themselves what it is. */
import * as Effect from "effect/Effect"
import * as Queue from "effect/Queue"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { Db } from "./Db.ts"

/** Holds one thing at most: something was announced on the channel since it was last taken, or may have been. */
export const announcements = (channel: string): Effect.Effect<Queue.Queue<void>, never, Db | Scope.Scope> =>
  Effect.gen(function* () {
    const { notifications } = yield* Db
    const told = yield* Queue.sliding<void>(1)
    yield* Effect.forkScoped(Stream.runForEach(notifications(channel), () => Queue.offer(told, undefined)))
    return told
  })
