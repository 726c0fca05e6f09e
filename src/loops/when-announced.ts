/**
 * What is done when somebody announces that there is something to do, by any process, and now and then all the same: for
 * what becomes due by itself, and for whoever announced it and vanished. A round that fails, or meets a fault of the
 * program, is told, and tried again after a pause.
 */
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Queue from "effect/Queue"
import type * as Scope from "effect/Scope"
import { answered } from "#src/engine/answered.ts"
import { supervise } from "#src/engine/supervise.ts"
import { announcements } from "#src/store/announcements.ts"
import type { Db } from "#src/store/Db.ts"

export interface WhenAnnounced<A> {
  /** After "could not": "evaluate alerts". */
  readonly does: string
  readonly channel: string
  /** Until the next round where nothing is announced, by what the last one answered. */
  readonly rest: (answer: A) => Duration.Input
  /** A round that takes longer in milliseconds waits for an answer that will not come. Default: ten minutes. */
  readonly withinMs?: number
}

/** Runs rounds until the scope closes, the first at once. */
export const whenAnnounced = <A, E, R>(
  { does, channel, rest, withinMs = 600_000 }: WhenAnnounced<A>,
  round: Effect.Effect<A, E, R>
): Effect.Effect<void, never, R | Db | Scope.Scope> =>
  Effect.gen(function* () {
    const told = yield* announcements(channel)
    const step = Effect.flatMap(supervise(does, answered(does, withinMs)(round)), (answer) =>
      Effect.timeoutOption(Queue.take(told), rest(answer))
    )
    yield* Effect.forkScoped(Effect.forever(step))
  })
