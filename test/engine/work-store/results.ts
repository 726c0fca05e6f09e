/** Promises about what is recorded, and what comes of changes that happen meanwhile. */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { anyPool } from "#schemas/placement.ts"
import type { Claimed, StatusChange } from "#src/engine/WorkStore.ts"
import { gone, type It, leaseMs, only, ready, result, setting, slack, uidsOf } from "./setting.ts"

export const resultTests = (it: It): void => {
  it.effect("a result is stored, gives the lease back and says when it is due again", () =>
    Effect.gen(function* () {
      const { work, store, make, claim, stored } = yield* setting
      const uid = yield* make()
      const claimed = only(yield* claim())
      const before = yield* stored(uid)
      const kept = yield* work.record([
        result(claimed, {
          dueIn: 5 * slack,
          attempt: 3,
          lastError: "It burns",
          change: { ...ready(claimed), status: null, phase: "provisioning", settled: false }
        })
      ])
      assert.deepStrictEqual(uidsOf(kept), [uid])
      const { resource, work: queued } = yield* stored(uid)
      assert.strictEqual(resource?.phase, "provisioning")
      assert.isNull(resource?.status)
      assert.strictEqual(resource?.observedGeneration, 1)
      assert.isTrue((resource?.revision ?? 0n) > (before.resource?.revision ?? 0n))
      assert.isFalse(queued?.leased)
      assert.strictEqual(queued?.attempt, 3)
      assert.strictEqual(queued?.lastError, "It burns")
      assert.approximately(queued?.dueIn ?? 0, 5 * slack, slack)
      assert.lengthOf(yield* claim(), 0)
      yield* store.advance(5 * slack + 1)
      const again = only(yield* claim())
      assert.strictEqual(again.attempt, 3)
      assert.strictEqual(again.phase, "provisioning")
      assert.isAtLeast(again.phaseAge, 5 * slack)
    })
  )

  it.effect("facts are merged key by key, and no result takes one away", () =>
    Effect.gen(function* () {
      const { work, make, take } = yield* setting
      const uid = yield* make()
      const other = yield* make()
      const learn = Effect.fnUntraced(function* (facts: Claimed["facts"]) {
        const claimed = yield* take(uid)
        yield* work.record([result(claimed, { change: { ...ready(claimed), status: null, facts } })])
      })
      assert.deepStrictEqual((yield* take(other)).facts, {})
      yield* learn({ made: true, label: "first", size: { of: 1 } })
      yield* learn({ label: "second", size: { is: 2 } })
      yield* learn({})
      const claimed = yield* take(uid)
      assert.deepStrictEqual(claimed.facts, { made: true, label: "second", size: { is: 2 } })
      yield* work.record([result(claimed, { change: undefined })])
      assert.deepStrictEqual((yield* take(uid)).facts, { made: true, label: "second", size: { is: 2 } })
    })
  )

  it.effect("text that the store cannot hold is refused as such, and nothing of its batch is written", () =>
    Effect.gen(function* () {
      const { work, make, take, stored } = yield* setting
      const good = yield* take(yield* make())
      const bad = yield* take(yield* make())
      for (const text of ["before\0after", "half of a pair: \ud800"]) {
        const condition = {
          type: "Ready",
          status: "false",
          reason: "ReconcileFailed",
          message: text,
          lastTransitionAt: new Date(0).toISOString(),
          observedGeneration: 1
        } as const
        const changes: ReadonlyArray<Partial<StatusChange>> = [
          { status: { text } },
          { status: { [text]: 1 } },
          { conditions: [condition] },
          { differences: [{ field: "/size", message: text }] },
          { events: [{ type: "Warning", reason: "ReconcileFailed", message: text }] }
        ]
        for (const change of changes) {
          const odd = result(bad, { change: { ...ready(bad), ...change } })
          const refused = yield* Effect.flip(work.record([result(good), odd]))
          assert.strictEqual(refused._tag, "ResultsRefused")
        }
        const { work: queued, resource } = yield* stored(good.uid)
        assert.isTrue(queued?.leased)
        assert.strictEqual(resource?.phase, "pending")
      }
      assert.lengthOf(yield* work.record([result(good), result(bad)]), 2)
    })
  )

  it.effect(
    "a lease that is given back for later is due then, and at once when it was changed meanwhile",
    () =>
      Effect.gen(function* () {
        const { work, store, orgId, make, take, claim } = yield* setting
        const uid = yield* make()
        yield* work.release([{ ...(yield* take(uid)), lateBy: -5 * slack }])
        assert.lengthOf(yield* claim(), 0)
        yield* store.advance(5 * slack + 1)
        const again = only(yield* claim())
        yield* store.update(orgId, uid, { size: 2 })
        yield* work.release([{ ...again, lateBy: -5 * slack }])
        assert.lengthOf(yield* claim(), 1)
      })
  )

  it.effect("a quiet result ends the turn and touches nothing else", () =>
    Effect.gen(function* () {
      const { work, store, make, claim, stored } = yield* setting
      const uid = yield* make()
      yield* work.record([result(only(yield* claim()), { dueIn: 0 })])
      const before = yield* stored(uid)
      const settled = only(yield* claim())
      assert.isTrue(settled.settled)
      assert.deepStrictEqual(settled.reported, { conditions: [], differences: [] })
      assert.lengthOf(yield* work.record([result(settled, { dueIn: slack, change: undefined })]), 1)
      const after = yield* stored(uid)
      assert.deepStrictEqual(after.resource, before.resource)
      assert.isFalse(after.work?.leased)
      assert.lengthOf(yield* claim(), 0)
      yield* store.advance(slack + 1)
      assert.lengthOf(yield* claim(), 1)
    })
  )

  it.effect("a new specification ends being settled; writing the same one does not", () =>
    Effect.gen(function* () {
      const { work, store, orgId, make, claim } = yield* setting
      const uid = yield* make()
      yield* work.record([result(only(yield* claim()))])
      yield* store.update(orgId, uid, { size: 1 })
      const same = only(yield* claim())
      assert.strictEqual(same.generation, 1)
      assert.isTrue(same.settled)
      yield* work.record([result(same)])
      yield* store.update(orgId, uid, { size: 2 })
      const changed = only(yield* claim())
      assert.strictEqual(changed.generation, 2)
      assert.isFalse(changed.settled)
      assert.deepStrictEqual(changed.spec, { size: 2 })
    })
  )

  for (const quiet of [false, true]) {
    const kindOfResult = quiet ? "a quiet result" : "a result"
    it.effect(`what changes while it runs is due at once after ${kindOfResult}`, () =>
      Effect.gen(function* () {
        const { work, store, orgId, make, take, claim } = yield* setting
        const interventions = [
          (uid: string) => store.update(orgId, uid, { size: 2 }),
          (uid: string) => Effect.asVoid(store.retry(orgId, uid)),
          (uid: string) => store.pause(orgId, { scope: "resource", target: uid }, null),
          (uid: string) => store.resume(orgId, { scope: "resource", target: uid }),
          (uid: string) => store.delete(orgId, uid)
        ]
        const uid = yield* make()
        for (const intervene of interventions) {
          const claimed = yield* take(uid)
          yield* intervene(uid)
          assert.lengthOf(yield* claim(), 0, "the lease holds")
          yield* work.record([result(claimed, quiet ? { change: undefined } : {})])
          const next = only(yield* claim())
          yield* work.record([result(next)])
          assert.lengthOf(yield* claim(), 0, "only once")
        }
      })
    )
  }

  it.effect("what changes after its lease ended is due at once", () =>
    Effect.gen(function* () {
      const { store, orgId, make, claim } = yield* setting
      const uid = yield* make()
      yield* claim()
      yield* store.update(orgId, uid, { size: 2 })
      yield* store.advance(leaseMs + 1_000)
      assert.strictEqual(only(yield* claim()).generation, 2)
    })
  )

  it.effect("what is gone leaves no queue entry and no secrets, and what contained it is due", () =>
    Effect.gen(function* () {
      const { work, store, orgId, make, take, claimUids, stored } = yield* setting
      const parent = yield* make()
      const child = yield* make({ parentUid: parent, secrets: ["password", "token"] })
      yield* work.record([result(yield* take(parent))])
      yield* work.record([result(yield* take(child))])
      assert.strictEqual((yield* stored(child)).secrets, 2)
      yield* store.delete(orgId, parent)
      const above = yield* take(parent)
      assert.deepInclude(above.children, { count: 1, notDeleting: 0 })
      yield* work.record([result(above, { change: { ...ready(above), phase: "deleting" } })])
      const last = yield* take(child)
      assert.isTrue(last.deleting)
      assert.deepStrictEqual(yield* claimUids(), [])
      yield* work.record([result(last, { change: gone(last) })])
      assert.deepStrictEqual(yield* stored(child), { resource: null, work: null, secrets: 0 })
      const next = yield* take(parent)
      assert.deepInclude(next.children, { count: 0 })
      assert.isTrue(Option.isNone(yield* work.claimOne(orgId, child, leaseMs, anyPool)))
    })
  )

  it.effect("a container is due when the last in it goes while it runs, and in the same batch", () =>
    Effect.gen(function* () {
      const { work, store, orgId, make, take, claimUids } = yield* setting
      const parent = yield* make()
      const first = yield* make({ parentUid: parent })
      const second = yield* make({ parentUid: parent })
      yield* store.delete(orgId, parent)
      const deleting = (claimed: Claimed) =>
        result(claimed, { change: { ...ready(claimed), phase: "deleting", settled: false } })
      const above = yield* take(parent)
      const one = yield* take(first)
      const two = yield* take(second)
      yield* work.record([result(one, { change: gone(one) })])
      yield* work.record([deleting(above)])
      assert.deepStrictEqual(yield* claimUids(), [parent], "gone while the container ran")
      yield* store.advance(leaseMs + 1_000)
      const again = yield* take(parent)
      yield* work.record([deleting(again), result(two, { change: gone(two) })])
      assert.deepStrictEqual(yield* claimUids(), [parent], "gone in the same batch")
    })
  )
}
