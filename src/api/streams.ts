/**
 * Answers that go on for long: how many of them a credential and an organization may have open in one process, since
 * each of them asks the store again and again.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import type { Caller } from "./definition/scope.ts"
import { problem } from "./problem.ts"

export const StreamLimits = Context.Reference<{ readonly credential: number; readonly organization: number }>(
  "svc/api/StreamLimits",
  { defaultValue: () => ({ credential: 50, organization: 100 }) }
)

export const makeStreams = Effect.gen(function* () {
  const most = yield* StreamLimits
  const open = new Map<string, number>()
  const count = (key: string, by: number) => {
    const now = (open.get(key) ?? 0) + by
    if (now > 0) open.set(key, now)
    else open.delete(key)
  }

  /** Fails when there is no room for another; otherwise answers what each stream is to be wrapped in. */
  return Effect.fnUntraced(function* ({
    orgId,
    caller
  }: {
    readonly orgId: string
    readonly caller: Pick<Caller, "credentialId">
  }) {
    const keys = [
      [`credential ${caller.credentialId}`, most.credential],
      [`organization ${orgId}`, most.organization]
    ] as const
    const isFull = () => keys.some(([key, limit]) => (open.get(key) ?? 0) >= limit)
    if (isFull())
      return yield* problem(
        429,
        "too_many_streams",
        `At most ${most.credential} streams of one credential and ${most.organization} of an organization may be open at once. Close some`,
        { headers: { "retry-after": "10" } }
      )
    // Counted once it is really sent: an answer that nobody takes is never closed either.
    const place = Effect.acquireRelease(
      Effect.sync(() => {
        if (isFull()) return false
        for (const [key] of keys) count(key, 1)
        return true
      }),
      (taken) => Effect.sync(() => keys.forEach(([key]) => void (taken && count(key, -1))))
    )
    return <A, E, R>(stream: Stream.Stream<A, E, R>): Stream.Stream<A, E, R> =>
      Stream.scoped(Stream.flatMap(Stream.fromEffect(place), (taken) => (taken ? stream : Stream.empty)))
  })
})
