/** How looks are shared out among processes, and in which order one process makes them. */
import { assert, it } from "@effect/vitest"
import * as fc from "fast-check"
import { LookSchedule } from "#src/engine/look-schedule.ts"
import { slotCount, slotOf, slotsOf } from "#src/engine/members.ts"

const named = (ids: ReadonlyArray<string>) => ids.map((id) => ({ id, region: "here" }))
const processes = fc.uniqueArray(fc.uuid(), { minLength: 1, maxLength: 12 })

it("every slot is one process's, whoever asks, and shares are even", () => {
  fc.assert(
    fc.property(processes, (ids) => {
      const holders = new Map<number, string>()
      const share = Math.ceil(slotCount / ids.length)
      for (const id of ids) {
        const mine = slotsOf(id, named(ids.toReversed()))
        assert.isAtMost(mine.size, share)
        for (const slot of mine) {
          assert.isFalse(holders.has(slot))
          holders.set(slot, id)
        }
      }
      assert.strictEqual(holders.size, slotCount)
    })
  )
})

it("when a process goes, most slots of the others stay where they are", () => {
  const ids = ["a", "b", "c", "d"].map((letter) => `${letter}0000000-0000-4000-8000-000000000000`)
  const rest = ids.slice(1)
  for (const id of rest) {
    const [before, after] = [slotsOf(id, named(ids)), slotsOf(id, named(rest))]
    const stayed = [...before].filter((slot) => after.has(slot)).length
    assert.isAbove(stayed, 0.6 * before.size)
  }
})

it("a slot is the last byte of a uid", () => {
  assert.strictEqual(slotOf("00000000-0000-7000-8000-0000000000ff"), 255)
  assert.strictEqual(slotOf("ffffffff-ffff-7fff-8fff-ffffffffff0a"), 10)
})

const kept = (uid: string, orgId = "one", kind = "Cache") => ({ orgId, uid, kind })
const any = (room: number, kind = "Cache") => [{ kind, room, orgRoom: () => Number.POSITIVE_INFINITY }]

it("looks come when they are due, oldest first, and once", () => {
  const schedule = new LookSchedule()
  schedule.put(kept("b"), 20)
  schedule.put(kept("a"), 10)
  schedule.put(kept("c"), 30)
  assert.strictEqual(schedule.nextAt, 10)
  assert.isFalse(schedule.hasDue(9))
  assert.deepStrictEqual(schedule.take(any(10), 9), [])
  const uids = (room: number, now: number) => schedule.take(any(room), now).map(({ uid }) => uid)
  assert.deepStrictEqual(uids(1, 25), ["a"])
  assert.isTrue(schedule.hasDue(25))
  assert.deepStrictEqual(uids(10, 25), ["b"])
  assert.deepStrictEqual(uids(10, 25), [])
  assert.isFalse(schedule.hasDue(25))
  assert.strictEqual(schedule.nextAt, 30)
  assert.strictEqual(schedule.size, 1)
})

it("what is put anew or dropped no longer comes at its old time", () => {
  const schedule = new LookSchedule()
  schedule.put(kept("a"), 10)
  schedule.put(kept("a"), 50)
  schedule.put(kept("b"), 10)
  schedule.put(kept("c"), 10)
  schedule.drop("b")
  assert.deepStrictEqual(schedule.take(any(0), 20), [])
  schedule.dropUnless(({ uid }) => uid !== "c")
  assert.deepStrictEqual(schedule.take(any(9), 20), [])
  assert.deepStrictEqual(
    schedule.take(any(9), 50).map(({ uid }) => uid),
    ["a"]
  )
})

it("an organization with many resources keeps nobody waiting, nor does one that has its share", () => {
  const schedule = new LookSchedule()
  for (let i = 0; i < 100; i++) schedule.put(kept(`many-${i}`, "many"), i)
  schedule.put(kept("few", "few"), 1_000)
  const first = schedule.take(any(10), 2_000)
  assert.include(
    first.map(({ uid }) => uid),
    "few"
  )
  const full = [{ kind: "Cache", room: 10, orgRoom: (orgId: string) => (orgId === "many" ? 0 : 5) }]
  assert.deepStrictEqual(schedule.take(full, 2_000), [])
  assert.lengthOf(schedule.take(any(1_000), 2_000), 100 - (first.length - 1))
})

it("kinds are taken apart from each other", () => {
  const schedule = new LookSchedule()
  schedule.put(kept("a", "one", "Cache"), 1)
  schedule.put(kept("b", "one", "Database"), 1)
  assert.deepStrictEqual(
    schedule.take(any(5, "Database"), 2).map(({ uid }) => uid),
    ["b"]
  )
  assert.deepStrictEqual(
    schedule.take(any(5), 2).map(({ uid }) => uid),
    ["a"]
  )
})
