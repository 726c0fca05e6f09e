/**
 * Waiting for a condition, in real time whatever clock a test has. All waits share one bound, far longer than any of them
 * takes on a machine that does much else; the error says what was seen last.
 */
import { setTimeout as pause } from "node:timers/promises"
import { inspect } from "node:util"
import * as Effect from "effect/Effect"

const boundMs = 240_000
/**
 * After how long to look again, by how long it has been waited: a look may be a request to a control plane, and who looks
 * as often as it can takes the processor from what it waits for. It is seen at most a tenth of the wait too late.
 */
const pauseMs = (waitedMs: number): number => Math.min(500, Math.max(25, waitedMs / 10))

type Met<A> = Exclude<A, undefined | false>

const isMet = (value: unknown): boolean => value !== undefined && value !== false

const never = (what: string, seen: unknown): Error =>
  new Error(
    `never: ${what}; seen last: ${(seen instanceof Error ? seen.message : inspect(seen, { depth: 6 })).slice(0, 4_000)}`,
    { cause: seen }
  )

/** For moments that are part of a test. Who waits for something uses {@link until} or {@link eventually}. */
export const sleep = (ms: number): Promise<void> => pause(ms)

/** The first value that is neither undefined nor false. What `look` throws counts as "not yet". */
export const until = async <A>(what: string, look: () => Promise<A> | A, seconds = boundMs / 1_000) => {
  const began = performance.now()
  for (;;) {
    let seen: unknown
    try {
      const value = await look()
      if (isMet(value)) return value as Met<A>
      seen = value
    } catch (error) {
      seen = error
    }
    const waited = performance.now() - began
    if (waited > seconds * 1_000) throw never(what, seen)
    await pause(pauseMs(waited))
  }
}

/** The first value that `holds`, or that is neither undefined nor false. Failures of `look` are failures. */
export function eventually<A, E, R>(
  what: string,
  look: Effect.Effect<A, E, R>,
  holds: (value: A) => boolean
): Effect.Effect<A, E, R>
export function eventually<A, E, R>(what: string, look: Effect.Effect<A, E, R>): Effect.Effect<Met<A>, E, R>
export function eventually<A, E, R>(
  what: string,
  look: Effect.Effect<A, E, R>,
  holds: (value: A) => boolean = isMet
): Effect.Effect<A, E, R> {
  return Effect.gen(function* () {
    const began = performance.now()
    for (;;) {
      const value = yield* look
      if (holds(value)) return value
      const waited = performance.now() - began
      if (waited > boundMs) return yield* Effect.die(never(what, value))
      yield* Effect.promise((signal) => pause(pauseMs(waited), undefined, { signal }))
    }
  })
}
