/**
 * `SVC_SIMULATION_SEEDS` sets how many histories are played, `SVC_SIMULATION_SEED` plays one alone and tells how it went.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { Flaw } from "./memory-rows.ts"
import type { ClusterOptions } from "./simulation/cluster.ts"
import { endlessChanges, resyncFlood } from "./simulation/flood.ts"
import { type Guarantee, Violation } from "./simulation/watcher.ts"
import { Simulation, times } from "./simulation.ts"

const numberFrom = (name: string): number | undefined => {
  const value = process.env[name]
  return value === undefined || value === "" ? undefined : Number(value)
}
const onlySeed = numberFrom("SVC_SIMULATION_SEED")
/** Each of the flaws below is found within 50 histories; this is twenty times as many. */
const seeds = numberFrom("SVC_SIMULATION_SEEDS") ?? 1_000

/** The guarantee that a history breaks, if it does. Anything else that is thrown is a fault of the simulation. */
const broken = (play: () => void): Guarantee | undefined => {
  try {
    play()
    return undefined
  } catch (error) {
    if (error instanceof Violation) return error.guarantee
    throw error
  }
}

/** Everything that happened, in order. */
const historyOf = (seed: number): ReadonlyArray<string> => {
  const simulation = new Simulation(seed)
  const told: Array<string> = []
  simulation.cluster.watcher.listen = (line) => told.push(line)
  simulation.run()
  return told
}

/** Plays a history and, when it breaks a guarantee, says how to play it again and what came before. */
const play = (seed: number) =>
  Effect.sync(() => {
    const simulation = new Simulation(seed)
    try {
      simulation.run()
    } catch (error) {
      const last = simulation.cluster.watcher.history.slice(onlySeed === undefined ? -60 : 0)
      throw new Error(
        `seed ${seed}: ${String(error)}\nPlay it again with SVC_SIMULATION_SEED=${seed}. Before that:\n${last.join("\n")}`,
        { cause: error }
      )
    }
    return simulation.cluster.watcher.counts
  })

describe("the engine, simulated", () => {
  if (onlySeed !== undefined) {
    it.live(`seed ${onlySeed}`, () => play(onlySeed), 600_000)
    return
  }

  it.live(
    `keeps its guarantees in ${seeds} histories of crashes, stalls, outages and lost messages`,
    () =>
      Effect.gen(function* () {
        const total = { refused: 0, fenced: 0, faults: 0 }
        for (let seed = 1; seed <= seeds; seed++) {
          const counts = yield* play(seed)
          total.refused += counts.refused
          total.fenced += counts.fenced
          total.faults += counts.faults
          // Lets the test runner breathe.
          if (seed % 20 === 0) yield* Effect.sleep(0)
        }
        // The histories are about something: faults struck, and late processes were turned away at both ends.
        assert.isAbove(total.faults, 4 * seeds)
        if (seeds < 100) return
        assert.isAbove(total.refused, seeds / 10)
        assert.isAbove(total.fenced, seeds / 100)
      }),
    1_800_000
  )

  it("plays the same history for the same seed, and another for another", () => {
    const first = historyOf(7)
    assert.isAbove(first.length, 50)
    assert.deepStrictEqual(historyOf(7), first)
    assert.notDeepEqual(historyOf(8), first)
  })

  it("lets no person wait behind a flood of routine looks", () => {
    for (let seed = 1; seed <= 10; seed++) resyncFlood(seed, times)
  })

  it("lets no routine look wait for ever behind people", () => {
    for (let seed = 1; seed <= 4; seed++) endlessChanges(seed, times)
  })
})

describe.skipIf(onlySeed !== undefined)("the simulation notices", () => {
  /** The first guarantee that breaks in any of so many histories. */
  const firstBroken = (histories: number, options: ClusterOptions): Guarantee | undefined => {
    for (let seed = 1; seed <= histories; seed++) {
      const found = broken(() => new Simulation(seed, options).run())
      if (found !== undefined) return found
    }
    return undefined
  }

  const expected: ReadonlyArray<readonly [flaw: Flaw, breaks: ReadonlyArray<Guarantee>]> = [
    ["no fencing", ["a lost lease writes nothing"]],
    ["leases ignored", ["one at a time"]],
    ["leases never end", ["nobody waits long", "phases have deadlines", "everything settles"]],
    ["nothing released", ["leases are given back", "a lost lease writes nothing"]],
    ["again ignored", ["nobody waits long", "everything settles"]],
    ["waiters not woken", ["waiting ones are woken", "everything settles"]],
    ["changes before waiting missed", ["waiting ones are woken", "everything settles"]],
    ["parents not woken", ["everything settles"]],
    ["deletion overwritten", ["deletion is not taken back"]],
    ["pauses invisible", ["paused is not touched"]],
    ["retries unacknowledged", ["everything settles"]]
  ]
  for (const [flaw, breaks] of expected) {
    it(`a store with ${flaw}`, () => {
      const found = firstBroken(400, { flaws: [flaw] })
      assert.include(breaks, found)
    })
  }

  for (const fenced of ["nothing", "writes"] as const) {
    it(`runs that write without asking, at a far end that fences ${fenced}`, () => {
      const found = firstBroken(1_000, { fenced, heedless: true })
      assert.include(["one writer out there", "what is gone leaves nothing behind"], found)
    })
  }

  it("a store with priorities ignored", () => {
    assert.strictEqual(
      broken(() => resyncFlood(1, times, { flaws: ["priorities ignored"] })),
      "nobody waits long"
    )
  })

  it("a store with age ignored", () => {
    assert.strictEqual(
      broken(() => endlessChanges(1, times, { flaws: ["age ignored"] })),
      "nobody waits long"
    )
  })
})
