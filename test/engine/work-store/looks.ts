/** Promises about looks without a lease: who is alive, what is kept, and what becomes of what they find. */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { anyPool } from "#schemas/placement.ts"
import { slotOf } from "#src/engine/members.ts"
import { noLease } from "#src/engine/WorkStore.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { type It, leaseMs, only, ready, result, setting, slack, uidsOf } from "./setting.ts"

const day = 86_400_000

export const lookTests = (it: It): void => {
  /** One that is settled and kept, due for a look in a second. */
  const keeping = Effect.gen(function* () {
    const all = yield* setting
    const { work, orgId, kind, make, claim } = all
    const uid = yield* make()
    const claimed = only(yield* claim())
    yield* work.record([result(claimed, { dueIn: 1_000, keptForMs: day })])
    const kept = { orgId, uid, kind }
    const all256 = Array.from({ length: 256 }, (_, slot) => slot)
    const isKept = Effect.map(work.kept(anyPool, all256), (rows) => rows.some((row) => row.uid === uid))
    return { ...all, uid, kept, isKept }
  })

  it.effect("what is kept is not offered when its look is due, and is once nobody has looked for long", () =>
    Effect.gen(function* () {
      const { store, uid, claimUids, isKept } = yield* keeping
      yield* store.advance(2_000)
      assert.deepStrictEqual(yield* claimUids(), [])
      yield* store.advance(day)
      assert.deepStrictEqual(yield* claimUids(), [uid])
      assert.isFalse(yield* isKept)
    })
  )

  it.effect("what is kept is told by pool and slot", () =>
    Effect.gen(function* () {
      const { work, uid, kept } = yield* keeping
      const others = Array.from({ length: 256 }, (_, slot) => slot).filter((slot) => slot !== slotOf(uid))
      const of = (slots: ReadonlyArray<number>, pool = anyPool) =>
        Effect.map(work.kept(pool, slots), (rows) => rows.filter((row) => row.uid === uid))
      assert.deepStrictEqual(yield* of([slotOf(uid)]), [kept])
      assert.deepStrictEqual(yield* of(others), [])
      assert.deepStrictEqual(yield* of([slotOf(uid)], "elsewhere"), [])
      assert.deepStrictEqual(yield* of([]), [])
    })
  )

  it.effect("a look gets what a run gets, and no lease", () =>
    Effect.gen(function* () {
      const { work, uid, kept, isKept, stored } = yield* keeping
      const looked = only(yield* work.look([kept]))
      assert.strictEqual(looked.uid, uid)
      assert.strictEqual(looked.token, noLease)
      assert.isTrue(looked.settled)
      assert.deepStrictEqual(looked.spec, { size: 1 })
      assert.deepStrictEqual(looked.status, { size: 1 })
      assert.isFalse((yield* stored(uid)).work?.leased)
      assert.isTrue(yield* isKept)
      assert.deepStrictEqual(yield* work.record([result(looked)]), [], "and stores nothing")
      yield* work.release([looked])
      assert.isTrue(yield* isKept)
      assert.deepStrictEqual(yield* work.look([]), [])
      assert.deepStrictEqual(yield* work.look([{ ...kept, uid: uuid() }]), [])
    })
  )

  it.effect("what somebody has under lease, or has asked for, is not looked at without one", () =>
    Effect.gen(function* () {
      const { work, store, orgId, uid, kept, take, isKept } = yield* keeping
      const elsewhere = yield* store.makeOrganization
      assert.deepStrictEqual(yield* work.look([{ ...kept, orgId: elsewhere }]), [])
      const claimed = yield* take(uid)
      assert.deepStrictEqual(yield* work.look([kept]), [])
      assert.isFalse(yield* isKept)
      yield* work.record([result(claimed, { keptForMs: day })])
      assert.deepStrictEqual(uidsOf(yield* work.look([kept])), [uid])
      yield* store.update(orgId, uid, { size: 2 })
      assert.deepStrictEqual(yield* work.look([kept]), [])
      const changed = yield* take(uid)
      yield* work.record([result(changed, { keptForMs: day })])
      yield* store.retry(orgId, uid)
      assert.deepStrictEqual(yield* work.look([kept]), [])
    })
  )

  it.effect("a quiet result under a lease is kept as well, unless it was changed meanwhile", () =>
    Effect.gen(function* () {
      const { work, store, orgId, uid, take, claimUids, isKept } = yield* keeping
      const quiet = yield* take(uid)
      yield* work.record([result(quiet, { change: undefined, keptForMs: day })])
      assert.isTrue(yield* isKept)
      for (const change of [undefined, "changed"] as const) {
        const again = yield* take(uid)
        yield* store.update(orgId, uid, { size: change === undefined ? 2 : 3 })
        const more = change === undefined ? { change } : { change: ready(again) }
        yield* work.record([result(again, { ...more, keptForMs: day })])
        assert.isFalse(yield* isKept)
        assert.deepStrictEqual(yield* claimUids(), [uid])
        yield* store.advance(leaseMs + 1_000)
      }
    })
  )

  it.effect("what a look found is due like another try, and is kept no more", () =>
    Effect.gen(function* () {
      const { work, make, uid, kept, claim, claimUids, isKept, orgId } = yield* keeping
      yield* work.wake([kept])
      assert.isFalse(yield* isKept)
      const asked = yield* make()
      assert.deepStrictEqual(yield* claimUids(1), [asked])
      assert.deepStrictEqual(uidsOf(yield* claim(1)), [uid])
      yield* work.wake([kept])
      assert.deepStrictEqual(yield* claimUids(), [], "a lease stays with who has it")
      yield* work.wake([{ orgId, uid: uuid() }])
    })
  )

  it.effect("processes that are alive know of each other, and of none that went or whose time is over", () =>
    Effect.gen(function* () {
      const { work, store } = yield* setting
      const region = `r-${uuid().slice(-12)}`
      const [one, two] = [uuid(), uuid()].map((id) => ({ id, region }))
      const alive = (member: typeof one) =>
        Effect.map(work.join(member!, leaseMs), (all) =>
          all
            .filter((other) => other.region === region)
            .map((other) => other.id)
            .sort()
        )
      assert.deepStrictEqual(yield* alive(one), [one!.id])
      assert.deepStrictEqual(yield* alive(two), [one!.id, two!.id].sort())
      assert.deepStrictEqual(yield* alive(one), [one!.id, two!.id].sort())
      yield* store.advance(leaseMs - slack)
      assert.deepStrictEqual(yield* alive(one), [one!.id, two!.id].sort())
      yield* store.advance(slack + 1)
      assert.deepStrictEqual(yield* alive(one), [one!.id], "the other one said nothing for too long")
      assert.deepStrictEqual(yield* alive(two), [one!.id, two!.id].sort(), "and comes back")
      yield* work.leave(one!.id)
      yield* work.leave(one!.id)
      assert.deepStrictEqual(yield* alive(two), [two!.id])
      assert.isTrue(Option.isNone(yield* work.nextDueIn([])))
    })
  )
}
