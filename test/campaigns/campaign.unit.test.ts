import * as fs from "node:fs"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { play } from "./campaign.ts"
import { declarations, root } from "./declarations.ts"

const times = (rounds: number) => (played: number) => Effect.succeed(played < rounds)
const from = { name: "toy", seed: 7, full: true, roundMs: 60_000 }

describe("campaigns", () => {
  it("have names of their own, and every declaration is found", () => {
    const found = declarations()
    assert.isAbove(found.length, 5)
    assert.strictEqual(new Set(found.map(({ name }) => name)).size, found.length)
    for (const file of new Set(found.map((one) => one.file))) {
      const calls = fs.readFileSync(path.join(root, file), "utf8").match(/^\s*campaign\(/gm) ?? []
      assert.strictEqual(calls.length, found.filter((one) => one.file === file).length, file)
    }
  })

  it.live("play rounds with one seed after another, each in a scope of its own", () =>
    Effect.gen(function* () {
      const log: Array<string> = []
      const round = ({ seed }: { readonly seed: number }) =>
        Effect.as(
          Effect.addFinalizer(() => Effect.sync(() => void log.push(`end ${seed}`))),
          log.push(`begin ${seed}`)
        )
      yield* play(from, times(2), round)
      assert.deepStrictEqual(log, ["begin 7", "end 7", "begin 8", "end 8"])
    })
  )

  it.live("end with the first round that fails, and say how to play it again", () =>
    Effect.gen(function* () {
      const seeds: Array<number> = []
      const round = ({ seed }: { readonly seed: number }) =>
        Effect.sync(() => {
          seeds.push(seed)
          assert.isBelow(seed, 8)
        })
      const exit = yield* Effect.exit(play(from, times(5), round))
      assert.deepStrictEqual(seeds, [7, 8])
      assert.match(
        Exit.isFailure(exit) ? String(exit.cause) : "",
        /seed 8: expected 8 to be below 8[\s\S]+npm run test:faults -- toy --seed 8/
      )
    })
  )

  it.live("end with a round that does not end", () =>
    Effect.gen(function* () {
      const exit = yield* Effect.exit(play({ ...from, roundMs: 20 }, times(5), () => Effect.never))
      assert.match(
        Exit.isFailure(exit) ? String(exit.cause) : "",
        /seed 7: the round takes longer than 20 ms/
      )
    })
  )
})
