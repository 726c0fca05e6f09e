/**
 * Turns at what only a few may do at a time. Those that are needed first go first, except at every fourth turn, so
 * that they cannot keep all others waiting for ever; among equals the owner goes first who has the fewest under way,
 * and otherwise owners take turns: one with many waiting ones delays the others by no more than one of them.
 */
import * as Effect from "effect/Effect"
import { makeFairShare } from "#src/loops/fair-share.ts"

export interface Turn {
  readonly owner: string
  /** Somebody's service is down until it is done. */
  readonly first: boolean
}

interface Waiting extends Turn {
  readonly begin: () => void
}

/** Every so many turns nobody goes first. */
const plainEvery = 4

/** `mostOfOne`: an owner has no more under way, however many turns are free. */
export const makeTurns = (atOnce: number, mostOfOne: number = atOnce) => {
  /** Of each owner the oldest first; whoever had a turn comes last. */
  const queues = new Map<string, Array<Waiting>>()
  const shares = makeFairShare(atOnce, { mostOfOne, reserve: false })
  let turns = 0

  const next = (): Waiting | undefined => {
    const plain = turns % plainEvery === plainEvery - 1
    let best: Waiting | undefined
    const rank = (one: Waiting) => [!plain && one.first ? 0 : 1, shares.held(one.owner)] as const
    for (const [owner, queue] of queues) {
      if (shares.room(owner) === 0) continue
      const one = (plain ? undefined : queue.find(({ first }) => first)) ?? queue[0]
      if (one === undefined) continue
      if (best === undefined) {
        best = one
        continue
      }
      const [a, b] = [rank(one), rank(best)]
      if (a[0] < b[0] || (a[0] === b[0] && a[1] < b[1])) best = one
    }
    return best
  }

  const leave = (one: Waiting) => {
    const rest = (queues.get(one.owner) ?? []).filter((other) => other !== one)
    if (rest.length === 0) queues.delete(one.owner)
    else queues.set(one.owner, rest)
  }

  const give = () => {
    while (shares.free() > 0) {
      const one = next()
      if (one === undefined) return
      const { owner } = one
      const rest = (queues.get(owner) ?? []).filter((other) => other !== one)
      queues.delete(owner)
      if (rest.length > 0) queues.set(owner, rest)
      turns++
      shares.take(owner)
      one.begin()
    }
  }

  const giveBack = (owner: string) => {
    shares.giveBack(owner)
    give()
  }

  /** Runs it when it is its turn; until then it can be interrupted like anything that waits. */
  const take =
    ({ owner, first }: Turn) =>
    <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
      Effect.uninterruptibleMask((restore) => {
        let begun = false
        let one: Waiting | undefined
        const wait = Effect.callback<void>((resume) => {
          one = {
            owner,
            first,
            begin: () => {
              begun = true
              resume(Effect.void)
            }
          }
          queues.set(owner, [...(queues.get(owner) ?? []), one])
          give()
        })
        return Effect.andThen(restore(wait), restore(self)).pipe(
          Effect.ensuring(
            Effect.sync(() => {
              if (begun) giveBack(owner)
              else if (one !== undefined) leave(one)
            })
          )
        )
      })

  return { take }
}
