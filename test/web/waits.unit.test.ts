/** From a resource that waits down to the cause. */
import { assert, it } from "@effect/vitest"
import { type Waiting, waitsOf } from "../../web/src/live/waits.ts"

/** Resources of which each waits for the one that is named. */
const world = (waits: Readonly<Record<string, string | null>>) => {
  const all = Object.entries(waits).map(
    ([uid, on]): Waiting => ({ uid, waitingOn: on === null ? null : { uid: on, kind: "Queue", name: on } })
  )
  const byUid = new Map(all.map((one) => [one.uid, one]))
  return (uid: string) => {
    const resource = byUid.get(uid)
    return resource === undefined ? undefined : waitsOf(resource, byUid).map(({ name }) => name)
  }
}

it("names each resource on the way to the one that waits for none", () => {
  const waits = world({ copy: "main", main: "server", server: null })
  assert.deepStrictEqual(waits("copy"), ["main", "server"])
  assert.deepStrictEqual(waits("server"), [])
})

it("names one that is not known here, and goes no further", () => {
  assert.deepStrictEqual(world({ copy: "elsewhere" })("copy"), ["elsewhere"])
})

it("comes to an end in circles", () => {
  const waits = world({ a: "b", b: "c", c: "a", d: "b" })
  assert.deepStrictEqual(waits("a"), ["b", "c"])
  assert.deepStrictEqual(waits("d"), ["b", "c", "a"])
})
