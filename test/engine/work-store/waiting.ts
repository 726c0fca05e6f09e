/** Promises about waiting for another resource. */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { uuid } from "#test/setup/fixtures.ts"
import { gone, type It, leaseMs, result, setting, uidsOf, waitsFor } from "./setting.ts"

export const waitingTests = (it: It): void => {
  it.effect("what waits is due when the other one is recorded as changed, and not before", () =>
    Effect.gen(function* () {
      const { work, make, take, claimUids, stored } = yield* setting
      const on = yield* make()
      const waiter = yield* make()
      const stranger = yield* make()
      yield* work.record([waitsFor(yield* take(waiter), on)])
      yield* work.record([result(yield* take(stranger))])
      assert.strictEqual((yield* stored(waiter)).work?.waitingOn, on)
      const other = yield* take(on)
      assert.deepStrictEqual(yield* claimUids(), [])
      yield* work.record([result(other)])
      assert.deepStrictEqual(yield* claimUids(), [waiter])
      assert.isNull((yield* stored(waiter)).work?.waitingOn)
    })
  )

  it.effect("what waits is due when the other one is gone", () =>
    Effect.gen(function* () {
      const { work, make, take, claimUids } = yield* setting
      const on = yield* make()
      const waiter = yield* make()
      yield* work.record([waitsFor(yield* take(waiter), on)])
      const other = yield* take(on)
      yield* work.record([result(other, { change: gone(other) })])
      assert.deepStrictEqual(yield* claimUids(), [waiter])
    })
  )

  it.effect("a change between looking and recording is not missed by what waits for it", () =>
    Effect.gen(function* () {
      const { work, store, orgId, make, take, claimUids } = yield* setting
      const on = yield* make()
      const first = yield* take(on)
      const waiter = yield* make()
      const second = yield* make()
      const third = yield* make()
      const [a, b, c] = [yield* take(waiter), yield* take(second), yield* take(third)]
      yield* work.record([result(first)])
      yield* work.record([waitsFor(a, on)])
      assert.deepStrictEqual(yield* claimUids(), [waiter], "recorded meanwhile")
      yield* store.update(orgId, on, { size: 2 })
      const again = yield* take(on)
      yield* work.record([waitsFor(b, on)])
      assert.deepStrictEqual(yield* claimUids(), [second], "written meanwhile")
      yield* work.record([result(again, { change: gone(again) })])
      yield* work.record([waitsFor(c, on)])
      assert.deepStrictEqual(yield* claimUids(), [third], "gone meanwhile")
    })
  )

  it.effect("a change in the same batch is not missed by what waits for it", () =>
    Effect.gen(function* () {
      const { work, make, take, claimUids } = yield* setting
      const on = yield* make()
      const waiter = yield* make()
      const other = yield* take(on)
      yield* work.record([waitsFor(yield* take(waiter), on), result(other)])
      assert.deepStrictEqual(yield* claimUids(), [waiter])
    })
  )

  it.effect("what waits for something that was gone before it looked rests", () =>
    Effect.gen(function* () {
      const { work, make, take, claimUids } = yield* setting
      const on = yield* make()
      const waiter = yield* make()
      const other = yield* take(on)
      yield* work.record([result(other, { change: gone(other) })])
      yield* work.record([waitsFor(yield* take(waiter), on)])
      assert.deepStrictEqual(yield* claimUids(), [])
    })
  )

  it.effect("an unchanged other wakes nobody", () =>
    Effect.gen(function* () {
      const { work, make, take, claimUids } = yield* setting
      const on = yield* make()
      const waiter = yield* make()
      yield* work.record([result(yield* take(on))])
      yield* work.record([waitsFor(yield* take(waiter), on)])
      yield* work.record([result(yield* take(on), { change: undefined })])
      assert.deepStrictEqual(yield* claimUids(), [])
    })
  )

  it.effect(
    "a stale result in a batch does not keep its resource from being woken by another of the batch",
    () =>
      Effect.gen(function* () {
        const { work, store, make, take, claimUids } = yield* setting
        const on = yield* make()
        const waiter = yield* make()
        const stale = yield* take(waiter)
        yield* store.advance(leaseMs + 1_000)
        const other = yield* take(on)
        yield* work.record([waitsFor(yield* take(waiter), on)])
        assert.deepStrictEqual(uidsOf(yield* work.record([result(stale), result(other)])), [on])
        assert.deepStrictEqual(yield* claimUids(), [waiter])
      })
  )

  it.effect("what waits for a name is due when one of that name is recorded, and no other", () =>
    Effect.gen(function* () {
      const { work, kind, make, take, claimUids } = yield* setting
      const byName = (name: string) => ({ kind, projectId: null, environment: null, name })
      const name = `n-${uuid().slice(-12)}`
      const waiter = yield* make()
      const stranger = yield* make()
      yield* work.record([waitsFor(yield* take(waiter), byName(name))])
      yield* work.record([waitsFor(yield* take(stranger), byName(`${name}-other`))])
      assert.deepStrictEqual(yield* claimUids(), [])
      const on = yield* make({ name })
      yield* work.record([result(yield* take(on))])
      assert.deepStrictEqual(yield* claimUids(), [waiter])
    })
  )

  it.effect("a name that comes between looking and recording is not missed", () =>
    Effect.gen(function* () {
      const { work, kind, make, take, claimUids } = yield* setting
      const name = `n-${uuid().slice(-12)}`
      const byName = { kind, projectId: null, environment: null, name }
      const waiter = yield* make()
      const looked = yield* take(waiter)
      const on = yield* take(yield* make({ name }))
      yield* work.record([waitsFor(looked, byName)])
      assert.deepStrictEqual(yield* claimUids(), [waiter])
      const second = yield* make()
      yield* work.record([waitsFor(yield* take(second), byName), result(on)])
      assert.deepStrictEqual(yield* claimUids(), [second])
    })
  )
}
