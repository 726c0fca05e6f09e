/** What the platform does once in an interval, however many processes it has. */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { readClocks, runningMs } from "#src/engine/lease-clock.ts"
import { periodic } from "#src/loops/periodic.ts"
import { Db, repeatable, type Sql } from "#src/store/Db.ts"

export interface Turn {
  /** Of the row that says when it was last begun. */
  readonly name: string
  /** After "could not": "measure queues". */
  readonly does: string
  /** Intervals begin at multiples of it since 1970, by the clock of the store. */
  readonly seconds: number
}

/**
 * Whether this process is the one to do it in the interval that is now, and how long that lasts still. Whoever takes a
 * turn and vanishes leaves it undone; the next one comes with the next interval. A clock that was set back takes nobody's
 * turn away.
 */
export const take = (sql: Sql, { name, seconds }: Turn) =>
  Effect.map(
    repeatable(sql<{ readonly mine: boolean; readonly leftMs: number }>`
      with interval_now as (
        select date_bin(make_interval(secs => ${seconds}::int), now(), 'epoch') as at
      ), mine as (
        insert into metric_turn as t (name, at) select ${name}, at from interval_now
        on conflict (name) do update set at = excluded.at
          where t.at < excluded.at or t.at > excluded.at + make_interval(secs => ${seconds}::int)
        returning 1
      )
      select exists (select from mine) as mine,
        (${seconds}::int - extract(epoch from now() - at))::float8 * 1000 as "leftMs" from interval_now`),
    ([row]) => row ?? { mine: false, leftMs: 0 }
  )

/** Until the scope closes. A round may take as long as its interval. */
export const inTurns = <A, E, R>(
  turn: Turn,
  round: Effect.Effect<A, E, R>
): Effect.Effect<void, never, R | Db | Scope.Scope> =>
  Effect.gen(function* () {
    const { engine: sql } = yield* Db
    const clock = yield* Clock.Clock
    let asked = readClocks(clock)
    /** In an interval whose turn was given the store is not asked again. */
    let leftMs = 0
    yield* periodic(
      {
        does: turn.does,
        every: Duration.seconds(turn.seconds / 5),
        withinMs: turn.seconds * 1_000
      },
      Effect.gen(function* () {
        if (runningMs(clock, asked) < leftMs) return
        const now = readClocks(clock)
        const answer = yield* take(sql, turn)
        asked = now
        leftMs = answer.leftMs
        if (answer.mine) yield* round
      })
    )
  })
