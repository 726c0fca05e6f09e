import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { campaign, type Round } from "#test/campaigns/campaign.ts"
import type { Flaw } from "./memory-rows.ts"
import type { ClusterOptions } from "./simulation/cluster.ts"
import { endlessChanges, resyncFlood } from "./simulation/flood.ts"
import { type Guarantee, Violation } from "./simulation/watcher.ts"
import { Simulation, times } from "./simulation.ts"

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

/** Plays a history and, when it breaks a guarantee, says what came before: all of it, or the end. */
const play = ({ seed, full }: Round) =>
  Effect.sync(() => {
    const simulation = new Simulation(seed)
    try {
      simulation.run()
    } catch (error) {
      const before = simulation.cluster.watcher.history.slice(full ? 0 : -60)
      throw new Error(`${String(error)}\nBefore that:\n${before.join("\n")}`, { cause: error })
    }
    return simulation.cluster.watcher.counts
  })

/** Most of the flaws below are found within ten of them. */
const histories = 50

describe("the engine, simulated", () => {
  campaign(
    it.live,
    "simulation",
    "the engine keeps its guarantees in histories of crashes, stalls, outages and lost messages",
    {
      rounds: histories,
      roundMs: 120_000,
      // The histories are about something: faults struck, and the store turned late processes away.
      after: (counts) => {
        const sum = (key: "faults" | "looks" | "takenBack" | "refused") =>
          counts.reduce((total, one) => total + one[key], 0)
        assert.isAbove(sum("faults"), 4 * counts.length)
        assert.isAbove(sum("looks"), counts.length)
        if (counts.length < histories) return
        assert.isAbove(sum("refused"), counts.length / 10)
        assert.isAbove(sum("takenBack"), 0)
      }
    },
    play
  )

  it("comes to far ends that turn late processes away, which the store mostly does before", () => {
    // One of twenty, from a seed on that is shortly before the first.
    const turnedAway = Array.from({ length: 400 }, (_, i) => 400_001 + i).some((seed) => {
      const simulation = new Simulation(seed)
      simulation.run()
      return simulation.cluster.watcher.counts.fenced > 0
    })
    assert.isTrue(turnedAway)
  })

  it("plays the same history for the same seed, and another for another", () => {
    const first = historyOf(7)
    assert.isAbove(first.length, 50)
    assert.deepStrictEqual(historyOf(7), first)
    assert.notDeepEqual(historyOf(8), first)
  })

  it("lets no person wait behind a flood of routine looks", () => {
    for (let seed = 1; seed <= 4; seed++) resyncFlood(seed, times)
  })

  it("lets no routine look wait for ever behind people", () => {
    for (let seed = 1; seed <= 2; seed++) endlessChanges(seed, times)
  })
})

describe("the simulation notices", () => {
  /**
   * The first guarantee that breaks in any of so many histories. They begin with one (`from`) shortly before the first that
   * breaks any now, which only saves time: were they others, it would be found later.
   */
  const firstBroken = (histories: number, from: number, options: ClusterOptions): Guarantee | undefined => {
    for (let seed = from; seed < from + histories; seed++) {
      const found = broken(() => new Simulation(seed, options).run())
      if (found !== undefined) return found
    }
    return undefined
  }

  const expected: ReadonlyArray<readonly [flaw: Flaw, breaks: ReadonlyArray<Guarantee>, from?: number]> = [
    ["no fencing", ["a lost lease writes nothing"], 4],
    ["leases ignored", ["one at a time"]],
    ["leases never end", ["nobody waits long", "phases have deadlines", "everything settles"]],
    ["nothing released", ["leases are given back", "a lost lease writes nothing"]],
    ["again ignored", ["nobody waits long", "everything settles"], 30],
    ["waiters not woken", ["waiting ones are woken", "everything settles"]],
    ["changes before waiting missed", ["waiting ones are woken", "everything settles"], 8],
    ["parents not woken", ["everything settles"]],
    ["deletion overwritten", ["deletion is not taken back"], 7],
    ["kept ones forgotten", ["everything settles"]],
    ["finds ignored", ["everything settles"]],
    ["pauses invisible", ["paused is not touched"], 7],
    ["retries unacknowledged", ["everything settles"]],
    ["tokens repeated", ["one at a time"]]
  ]
  for (const [flaw, breaks, from = 1] of expected) {
    it(`a store with ${flaw}`, () => {
      const found = firstBroken(400, from, { flaws: [flaw] })
      assert.include(breaks, found)
    })
  }

  for (const fenced of ["nothing", "writes"] as const) {
    it(`runs that write without asking, at a far end that fences ${fenced}`, () => {
      const found = firstBroken(1_000, 55, { fenced, heedless: true })
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
