/** Being told that there is something to do, for loops that look for themselves what it is. */
import * as Effect from "effect/Effect"
import * as Queue from "effect/Queue"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { notifications, type Sql } from "./Db.ts"

/** Holds one thing at most: something was announced on the channel since it was last taken, or may have been. */
export const announcements = (
  sql: Sql,
  channel: string
): Effect.Effect<Queue.Queue<void>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const told = yield* Queue.sliding<void>(1)
    yield* Effect.forkScoped(
      Stream.runForEach(notifications(sql, channel), () => Queue.offer(told, undefined))
    )
    return told
  })
