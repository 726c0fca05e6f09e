import { assert, it } from "@effect/vitest"
import { awaitedBy } from "../../web/src/live/waits.ts"

it("what is waited for is followed to the deepest cause, to what is not there, and around a circle once", () => {
  const chain = (...waits: ReadonlyArray<readonly [string, string | null]>) => {
    const all = waits.map(([address, on]) => ({ address, waitingOn: on }))
    const [first] = all
    return first === undefined
      ? []
      : awaitedBy(first, (address) => all.find((one) => one.address === address)).map((one) => [
          one.address,
          one.resource !== undefined
        ])
  }
  assert.deepStrictEqual(chain(["a", null]), [])
  assert.deepStrictEqual(chain(["a", "b"], ["b", "c"], ["c", null]), [
    ["b", true],
    ["c", true]
  ])
  assert.deepStrictEqual(chain(["a", "b"], ["b", "gone"]), [
    ["b", true],
    ["gone", false]
  ])
  assert.deepStrictEqual(chain(["a", "b"], ["b", "a"]), [["b", true]])
})
