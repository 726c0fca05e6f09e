import { assert, describe, it } from "@effect/vitest"
import { makeFairShare } from "#src/loops/fair-share.ts"

describe("shares", () => {
  it("leave as much free as the largest holder has", () => {
    const shares = makeFairShare(1_000, { mostOfOne: 500 })
    const fill = (org: string) => {
      const room = shares.room(org)
      shares.take(org, room)
      return room
    }
    assert.deepStrictEqual(["a", "a", "b", "c", "d"].map(fill), [500, 0, 250, 125, 63])
    assert.strictEqual(shares.free(), 62)
    // What somebody gives back is for those with the least first.
    shares.giveBack("a", 100)
    assert.deepStrictEqual([shares.room("a"), shares.room("b"), shares.room("e")], [0, 0, 81])
    assert.deepStrictEqual(shares.rooms(), {
      holders: new Map([
        ["a", { held: 400, room: 0 }],
        ["b", { held: 250, room: 0 }],
        ["c", { held: 125, room: 19 }],
        ["d", { held: 63, room: 50 }]
      ]),
      others: 81
    })
    // Somebody else may be about to take some.
    assert.strictEqual(shares.rooms(40).others, 41)
  })

  it("bound one organization also where much is free", () => {
    const shares = makeFairShare(1_000, { mostOfOne: 10 })
    shares.take("a", 7)
    assert.deepStrictEqual([shares.room("a"), shares.room("b")], [3, 10])
    assert.deepStrictEqual([shares.rooms(4).holders.get("a")?.room, shares.rooms(4).others], [0, 6])
  })

  it("let one have all that is free where nothing is kept for others, up to its bound", () => {
    const shares = makeFairShare(4, { mostOfOne: 3, reserve: false })
    assert.deepStrictEqual([shares.room("a"), shares.rooms().others], [3, 3])
    shares.take("a", 3)
    assert.deepStrictEqual([shares.room("a"), shares.room("b"), shares.held("a")], [0, 1, 3])
    assert.deepStrictEqual([shares.rooms(1).holders.get("a")?.room, shares.rooms(1).others], [0, 0])
  })
})
