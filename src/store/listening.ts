/**
 * Notifications of Postgres for a whole process over one connection. Each connection is a process of the server that
 * weighs megabytes, and there are many loops that wait to be told of something.
 *
 * What it guarantees to each subscriber:
 * - The stream emits `undefined` once it listens and after every reconnection: anything may have happened while nobody
 *   listened. So does a subscriber that falls behind by more than it may keep.
 * - A slow subscriber delays no other.
 * - The stream does not end and does not fail; while there is no connection it is silent.
 *
 * The connection is there while somebody listens to anything, and a channel is listened to while it has a subscriber.
 */
import type { Notification, PgConnection } from "@effect/sql-pg/PgConnection"
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Queue from "effect/Queue"
import * as Random from "effect/Random"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type * as SqlError from "effect/sql/SqlError"

/** Payloads of a channel, or `undefined`: anything may have been said. */
export type Notifications = (channel: string) => Stream.Stream<string | undefined>

type Subscriber = Queue.Queue<string | undefined>

/** What a subscriber may have left to read. After that it is told that anything may have been said. */
const mostKept = 10_000
/** A server that does not confirm by then may be behind a connection that is dead without knowing it. */
const confirmed = "10 seconds"
const shortestMs = 100
const longestMs = 5_000

/** Listens until the scope closes. `connect` makes the connection, and makes it again after it was lost. */
export const makeNotifications = (
  connect: Effect.Effect<PgConnection, SqlError.SqlError, Scope.Scope>
): Effect.Effect<Notifications, never, Scope.Scope> =>
  Effect.gen(function* () {
    const subscribers = new Map<string, Set<Subscriber>>()
    /** Channels that the server has confirmed, and how to stop listening to each. */
    const listening = new Map<string, Scope.Closeable>()
    const changed = yield* Queue.sliding<void>(1)
    let failures = 0

    const tell = (channel: string, payload: string | undefined) => {
      for (const subscriber of subscribers.get(channel) ?? []) offer(subscriber, payload)
    }

    const listen = Effect.fnUntraced(function* (
      connection: PgConnection,
      channel: string,
      open: Scope.Scope,
      lost: Deferred.Deferred<never, SqlError.SqlError>
    ) {
      const scope = yield* Scope.fork(open)
      const heard = yield* Scope.provide(connection.listen(channel), scope)
      yield* Effect.forkIn(
        Effect.catchCause(pump(heard, tell), (cause) => Deferred.failCause(lost, cause)),
        scope
      )
      listening.set(channel, scope)
      tell(channel, undefined)
    })

    /** Brings what is listened to, to what somebody wants to hear. */
    const adjust = Effect.fnUntraced(function* (
      connection: PgConnection,
      open: Scope.Scope,
      lost: Deferred.Deferred<never, SqlError.SqlError>
    ) {
      for (const [channel, scope] of listening) {
        if (subscribers.has(channel)) continue
        // First, so that who comes meanwhile is not told that it listens.
        listening.delete(channel)
        yield* Scope.close(scope, Exit.void)
      }
      for (const channel of subscribers.keys()) {
        if (!listening.has(channel)) yield* listen(connection, channel, open, lost)
      }
    })

    /** One connection, from the first who listens to the last. */
    const session = Effect.acquireUseRelease(
      Effect.all([Scope.make(), Scope.make()]),
      ([connected, open]) =>
        Effect.gen(function* () {
          const lost = yield* Deferred.make<never, SqlError.SqlError>()
          const connection = yield* Scope.provide(connect, connected)
          // Without it each channel would want the connection for itself.
          const pinned = yield* Scope.provide(connection.pin, open)
          const keepUp = Effect.gen(function* () {
            while (subscribers.size > 0) {
              yield* Effect.timeout(adjust(pinned, open, lost), confirmed)
              failures = 0
              yield* Queue.take(changed)
            }
          })
          yield* Effect.raceFirst(keepUp, Deferred.await(lost))
        }),
      // The connection first: what is not open any more needs no word of goodbye for each channel.
      ([connected, open]) =>
        Effect.suspend(() => {
          listening.clear()
          return Effect.andThen(Scope.close(connected, Exit.void), Scope.close(open, Exit.void))
        })
    )

    const rest = Effect.gen(function* () {
      const longest = Math.min(longestMs, shortestMs * 2 ** Math.min(failures, 10))
      failures += 1
      yield* Effect.sleep(longest * (0.5 + 0.5 * (yield* Random.next)))
    })
    const round = Effect.gen(function* () {
      while (subscribers.size === 0) yield* Queue.take(changed)
      yield* Effect.catchCause(session, (cause) =>
        Effect.andThen(
          Cause.hasDies(cause)
            ? Effect.logError("a fault of the program: could not listen", cause)
            : Effect.void,
          rest
        )
      )
    })
    yield* Effect.forkScoped(Effect.forever(round))

    const subscribe = (channel: string) =>
      Effect.acquireRelease(
        Effect.gen(function* () {
          const subscriber = yield* Queue.unbounded<string | undefined>()
          const others = subscribers.get(channel)
          if (others === undefined) subscribers.set(channel, new Set([subscriber]))
          else others.add(subscriber)
          if (listening.has(channel)) offer(subscriber, undefined)
          else yield* Queue.offer(changed, undefined)
          return subscriber
        }),
        Effect.fnUntraced(function* (subscriber) {
          const others = subscribers.get(channel)
          others?.delete(subscriber)
          if (others?.size === 0) {
            subscribers.delete(channel)
            yield* Queue.offer(changed, undefined)
          }
          yield* Queue.shutdown(subscriber)
        })
      )
    return (channel) => Stream.unwrap(Effect.map(subscribe(channel), Stream.fromQueue))
  })

const offer = (subscriber: Subscriber, payload: string | undefined) => {
  if (Queue.sizeUnsafe(subscriber) < mostKept) Queue.offerUnsafe(subscriber, payload)
  else {
    Effect.runSync(Queue.clear(subscriber))
    Queue.offerUnsafe(subscriber, undefined)
  }
}

const pump = (
  heard: Queue.Dequeue<Notification, SqlError.SqlError>,
  tell: (channel: string, payload: string) => void
) => Effect.forever(Effect.map(Queue.take(heard), ({ channel, payload }) => tell(channel, payload)))
