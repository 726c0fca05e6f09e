import { assert, describe, it } from "@effect/vitest"
import { shareOut } from "#src/backups/destinations/turns.ts"

const waiting = (key: string, held = 0, room = 3) => ({ key, held, room })
const given = (...args: Parameters<typeof shareOut>) => [...shareOut(...args)]

describe("turns of destinations", () => {
  it("go to the destination that holds the fewest", () => {
    const all = [waiting("a", 2), waiting("b", 0), waiting("c", 1)]
    assert.deepStrictEqual(given(all, 1, ""), [["b", 1]])
    assert.deepStrictEqual(given(all, 4, ""), [
      ["b", 2],
      ["c", 1],
      ["a", 1]
    ])
  })

  it("go on after the last one where all hold as many", () => {
    const all = ["c", "a", "d", "b"].map((key) => waiting(key))
    assert.deepStrictEqual(given(all, 2, ""), [
      ["a", 1],
      ["b", 1]
    ])
    assert.deepStrictEqual(given(all, 3, "b"), [
      ["c", 1],
      ["d", 1],
      ["a", 1]
    ])
  })

  it("give nobody more than it has room for", () => {
    assert.deepStrictEqual(given([waiting("a", 2, 1), waiting("b", 0, 0)], 8, ""), [["a", 1]])
    assert.deepStrictEqual(given([waiting("a"), waiting("b", 0, 1)], 8, ""), [
      ["a", 3],
      ["b", 1]
    ])
    assert.deepStrictEqual(given([], 8, "a"), [])
  })
})
