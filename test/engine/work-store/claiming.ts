/** Promises about claims and leases: in which order, for how long, and given back. */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { anyPool } from "#schemas/placement.ts"
import type { KindRoom } from "#src/engine/WorkStore.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { gone, type It, leaseMs, only, ready, result, setting, slack, uidsOf } from "./setting.ts"

export const claimingTests = (it: It): void => {
  it.effect("what is created is due at once and comes with all a run needs to know", () =>
    Effect.gen(function* () {
      const { orgId, kind, make, claim } = yield* setting
      const parentUid = yield* make({ kind: "Parent" })
      const uid = yield* make({ name: "first", parentUid, spec: { size: 7 } })
      const claimed = only(yield* claim())
      const { token, reported, seen, now, lateBy, phaseAge, ...plain } = claimed
      assert.deepStrictEqual(plain, {
        orgId,
        uid,
        kind,
        projectId: null,
        environment: null,
        name: "first",
        parentUid,
        spec: { size: 7 },
        generation: 1,
        status: null,
        facts: {},
        observedGeneration: 0,
        phase: "pending",
        settled: false,
        deleting: false,
        attempt: 0,
        retryToken: null,
        paused: null,
        children: null
      })
      assert.isAbove(Number(token), 0)
      assert.isNotEmpty(seen)
      assert.isAbove(now, 0)
      assert.isAtLeast(lateBy, 0)
      assert.isAtLeast(phaseAge, 0)
      assert.deepStrictEqual(reported, { conditions: [], differences: [] })
    })
  )

  it.effect("a user's change comes before another try, and another try before a routine look", () =>
    Effect.gen(function* () {
      const { work, store, orgId, make, claim, claimUids } = yield* setting
      const routine = yield* make()
      const retried = yield* make()
      const changed = yield* make()
      const priority = (uid: string) => (uid === retried ? 1 : 2)
      const all = yield* claim()
      yield* work.record(all.map((one) => result(one, { dueIn: 0, priority: priority(one.uid) })))
      yield* store.advance(1)
      yield* store.update(orgId, changed, { size: 2 })
      assert.deepStrictEqual(yield* claimUids(1), [changed])
      assert.deepStrictEqual(yield* claimUids(1), [retried])
      assert.deepStrictEqual(yield* claimUids(1), [routine])
      assert.deepStrictEqual(yield* claimUids(1), [])
    })
  )

  it.effect("what was asked for a moment ago can be left to claims of nothing else", () =>
    Effect.gen(function* () {
      const { work, store, orgId, kind, make, claim } = yield* setting
      const routine = yield* make()
      const changed = yield* make()
      yield* work.record((yield* claim()).map((one) => result(one, { dueIn: 0 })))
      yield* store.advance(1)
      yield* store.update(orgId, changed, { size: 2 })
      const room: KindRoom = { kind, pool: anyPool, room: 10, fullOrgs: [] }
      const leaving = { ...room, leaveMs: slack }
      assert.deepStrictEqual(uidsOf(yield* work.claim([leaving], leaseMs)), [routine])
      assert.deepStrictEqual(uidsOf(yield* work.claim([leaving], leaseMs)), [])
      const urgent = yield* work.claim([{ ...room, urgent: true }], leaseMs)
      assert.deepStrictEqual(uidsOf(urgent), [changed])
      // Not left for ever, should nobody claim it like that.
      yield* work.release(urgent)
      yield* store.advance(slack + 1)
      assert.deepStrictEqual(uidsOf(yield* work.claim([leaving], leaseMs)), [changed])
    })
  )

  it.effect("age lifts a routine look above a fresh change", () =>
    Effect.gen(function* () {
      const { work, store, orgId, make, claim, claimUids } = yield* setting
      const routine = yield* make()
      const changed = yield* make()
      yield* work.record((yield* claim()).map((one) => result(one, { dueIn: 0 })))
      yield* store.advance(61_000)
      yield* store.update(orgId, changed, { size: 2 })
      assert.deepStrictEqual(yield* claimUids(1), [routine])
    })
  )

  it.effect("what is given back keeps its place in the order", () =>
    Effect.gen(function* () {
      const { work, store, orgId, make, claim, claimUids } = yield* setting
      const old = yield* make()
      const routine = yield* make()
      const changed = yield* make()
      const dueIn = (uid: string) => (uid === old ? 0 : 60_000)
      yield* work.record((yield* claim()).map((one) => result(one, { dueIn: dueIn(one.uid) })))
      yield* store.advance(65_000)
      yield* store.update(orgId, changed, { size: 2 })
      const all = yield* claim()
      assert.lengthOf(all, 3)
      yield* work.release(all)
      assert.deepStrictEqual(yield* claimUids(1), [old])
      assert.deepStrictEqual(yield* claimUids(1), [changed])
      const last = only(yield* claim())
      assert.strictEqual(last.uid, routine)
      assert.isAtLeast(last.lateBy, 5_000)
      assert.isBelow(last.lateBy, 5_000 + slack)
    })
  )

  it.effect("what was in the hands of somebody who died comes back at its priority", () =>
    Effect.gen(function* () {
      const { work, store, orgId, make, claim, claimUids } = yield* setting
      const routine = yield* make()
      const before = yield* make()
      const during = yield* make()
      yield* work.record((yield* claim()).map((one) => result(one, { dueIn: 0 })))
      yield* store.update(orgId, before, { size: 2 })
      const all = yield* claim()
      assert.lengthOf(all, 3)
      // Later than the others, so that it comes last among equals.
      yield* work.heartbeat(
        all.filter((one) => one.uid !== routine),
        leaseMs + 1_000
      )
      yield* work.heartbeat(
        all.filter((one) => one.uid === during),
        leaseMs + 2_000
      )
      yield* store.update(orgId, during, { size: 2 })
      yield* store.advance(leaseMs + 3_000)
      assert.deepStrictEqual(yield* claimUids(1), [before])
      assert.deepStrictEqual(yield* claimUids(1), [during])
      assert.deepStrictEqual(yield* claimUids(1), [routine])
    })
  )

  it.effect("a claim takes no more of a kind than there is room, and says how late it is", () =>
    Effect.gen(function* () {
      const { store, make, claim } = yield* setting
      for (let i = 0; i < 5; i++) yield* make()
      yield* store.advance(2_000)
      const first = yield* claim(2)
      assert.lengthOf(first, 2)
      assert.isAtLeast(first[0]!.lateBy, 2_000)
      assert.lengthOf(yield* claim(0), 0)
      assert.lengthOf(yield* claim(), 3)
    })
  )

  it.effect("an urgent claim takes what somebody asked for, and what is as late as that", () =>
    Effect.gen(function* () {
      const { work, store, make, claim, room } = yield* setting
      const urgent = (n = 10) => work.claim([{ ...room(n)[0]!, urgent: true }], leaseMs)
      const routine = yield* make()
      yield* work.record((yield* claim()).map((one) => result(one, { dueIn: 1_000, priority: 2 })))
      yield* store.advance(2_000)
      const asked = yield* make()
      assert.deepStrictEqual(uidsOf(yield* urgent()), [asked])
      assert.lengthOf(yield* urgent(), 0)
      yield* store.advance(65_000)
      assert.include(uidsOf(yield* urgent()), routine)
    })
  )

  it.effect("nothing is claimed for an organization that has its share", () =>
    Effect.gen(function* () {
      const { work, store, orgId, make, room } = yield* setting
      const other = yield* store.makeOrganization
      yield* make()
      const uid = yield* make({ org: other })
      assert.deepStrictEqual(uidsOf(yield* work.claim(room(10, [orgId]), leaseMs)), [uid])
      assert.deepStrictEqual(uidsOf(yield* work.claim(room(10, [orgId, other]), leaseMs)), [])
      assert.lengthOf(yield* work.claim(room(10), leaseMs), 1)
    })
  )

  it.effect("kinds are claimed apart from each other in one call", () =>
    Effect.gen(function* () {
      const { work, make, kind } = yield* setting
      const second = `${kind}Second`
      for (let i = 0; i < 3; i++) yield* make()
      for (let i = 0; i < 3; i++) yield* make({ kind: second })
      const claimed = yield* work.claim(
        [
          { kind, pool: anyPool, room: 2, fullOrgs: [] },
          { kind: second, pool: anyPool, room: 1, fullOrgs: [] }
        ],
        leaseMs
      )
      assert.deepStrictEqual(claimed.map((one) => one.kind).sort(), [kind, kind, second].sort())
      assert.lengthOf(yield* work.claim([], leaseMs), 0)
    })
  )

  it.effect("what is leased is not claimed again until the lease ends; then with a higher token", () =>
    Effect.gen(function* () {
      const { work, store, orgId, make, claim } = yield* setting
      const uid = yield* make()
      const first = only(yield* claim())
      assert.lengthOf(yield* claim(), 0)
      assert.isTrue(Option.isNone(yield* work.claimOne(orgId, uid, leaseMs, anyPool)))
      yield* store.advance(leaseMs - slack)
      assert.lengthOf(yield* claim(), 0)
      yield* store.advance(slack + 1)
      const second = only(yield* claim())
      assert.strictEqual(second.uid, uid)
      assert.isTrue(second.token > first.token)
    })
  )

  it.effect("a heartbeat keeps leases and tells which are lost", () =>
    Effect.gen(function* () {
      const { work, store, make, claim } = yield* setting
      yield* make()
      yield* make()
      const [kept, lost] = yield* claim()
      yield* work.record([result(lost!)])
      yield* store.advance(leaseMs - slack)
      assert.deepStrictEqual(uidsOf(yield* work.heartbeat([kept!, lost!], leaseMs)), [kept!.uid])
      yield* store.advance(leaseMs - slack)
      assert.lengthOf(yield* claim(), 0)
      yield* store.advance(slack + 1)
      assert.lengthOf(yield* claim(), 1)
      assert.deepStrictEqual(yield* work.heartbeat([kept!], leaseMs), [])
      assert.deepStrictEqual(yield* work.heartbeat([], leaseMs), [])
    })
  )

  it.effect("a late heartbeat revives a lease that nobody took over", () =>
    Effect.gen(function* () {
      const { work, store, make, claim } = yield* setting
      yield* make()
      const claimed = only(yield* claim())
      yield* store.advance(leaseMs + 5_000)
      assert.lengthOf(yield* work.heartbeat([claimed], leaseMs), 1)
      assert.lengthOf(yield* claim(), 0)
      assert.lengthOf(yield* work.record([result(claimed)]), 1)
    })
  )

  it.effect("a worker whose lease was taken over writes nothing", () =>
    Effect.gen(function* () {
      const { work, store, make, claim, stored } = yield* setting
      const uid = yield* make()
      const stale = only(yield* claim())
      yield* store.advance(leaseMs + 1_000)
      const holder = only(yield* claim())
      const before = yield* stored(uid)
      const late = [
        result(stale, { attempt: 9, lastError: "late", change: { ...ready(stale), phase: "failed" } }),
        result(stale, { change: undefined }),
        result(stale, { change: gone(stale) })
      ]
      for (const one of late) assert.deepStrictEqual(yield* work.record([one]), [])
      yield* work.release([stale])
      const after = yield* stored(uid)
      assert.deepStrictEqual(after.resource, before.resource)
      assert.deepStrictEqual({ ...after.work, dueIn: 0 }, { ...before.work, dueIn: 0 })
      assert.lengthOf(yield* claim(), 0)
      assert.deepStrictEqual(uidsOf(yield* work.record([result(holder)])), [uid])
      assert.deepStrictEqual(yield* work.record([result(holder)]), [], "a repeated result counts once")
    })
  )

  it.effect("what is given back unused is due at once", () =>
    Effect.gen(function* () {
      const { work, make, claim } = yield* setting
      yield* make()
      const first = only(yield* claim())
      yield* work.release([first])
      const second = only(yield* claim())
      assert.isTrue(second.token > first.token)
      assert.deepStrictEqual(yield* work.record([result(first)]), [])
      yield* work.release([])
    })
  )

  it.effect("one resource can be claimed whether due or not, unless it is leased or does not exist", () =>
    Effect.gen(function* () {
      const { work, store, orgId, make, take } = yield* setting
      const uid = yield* make()
      yield* work.record([result(yield* take(uid))])
      const claimed = yield* take(uid)
      assert.strictEqual(claimed.uid, uid)
      assert.isTrue(Option.isNone(yield* work.claimOne(orgId, uid, leaseMs, anyPool)))
      yield* store.advance(leaseMs + 1_000)
      assert.isTrue(Option.isSome(yield* work.claimOne(orgId, uid, leaseMs, anyPool)))
      assert.isTrue(Option.isNone(yield* work.claimOne(orgId, uuid(), leaseMs, anyPool)))
      const elsewhere = yield* store.makeOrganization
      assert.isTrue(Option.isNone(yield* work.claimOne(elsewhere, yield* make(), leaseMs, anyPool)))
    })
  )

  it.effect("work of a region is left to processes that serve it", () =>
    Effect.gen(function* () {
      const { work, orgId, make } = yield* setting
      const region = `r-${uuid().slice(-12)}`
      const uid = yield* make({ kind: "Cache", spec: { region } })
      const rooms = (pool: string): ReadonlyArray<KindRoom> => [
        { kind: "Cache", pool, room: 10, fullOrgs: [] }
      ]
      assert.deepStrictEqual(yield* work.claim(rooms("elsewhere"), leaseMs), [])
      assert.isTrue(Option.isNone(yield* work.claimOne(orgId, uid, leaseMs, "elsewhere")))
      assert.isAtMost(Option.getOrThrow(yield* work.nextDueIn(rooms(region))), 0)
      const claimed = yield* work.claim(rooms(region), leaseMs)
      assert.deepStrictEqual(
        claimed.map((one) => one.uid),
        [uid]
      )
    })
  )

  it.effect("work that is anybody's belongs to the region of the first process that takes it", () =>
    Effect.gen(function* () {
      const { work, orgId, kind, make } = yield* setting
      const uid = yield* make()
      const rooms = (pool: string): ReadonlyArray<KindRoom> => [{ kind, pool, room: 10, fullOrgs: [] }]
      const [claimed] = yield* work.claim(rooms("here"), leaseMs)
      assert.strictEqual(claimed?.uid, uid)
      yield* work.release([claimed!])
      assert.deepStrictEqual(yield* work.claim(rooms("elsewhere"), leaseMs), [])
      assert.isTrue(Option.isNone(yield* work.claimOne(orgId, uid, leaseMs, "elsewhere")))
      assert.isTrue(Option.isSome(yield* work.claimOne(orgId, uid, leaseMs, "here")))
    })
  )

  it.effect("the store tells when something is due next", () =>
    Effect.gen(function* () {
      const { work, store, kind, make, claim } = yield* setting
      assert.isTrue(Option.isNone(yield* work.nextDueIn([{ kind, pool: anyPool }])))
      assert.isTrue(Option.isNone(yield* work.nextDueIn([])))
      yield* make()
      yield* make()
      assert.isAtMost(Option.getOrThrow(yield* work.nextDueIn([{ kind, pool: anyPool }])), 0)
      const [first, second] = yield* claim()
      const dueIn = 5 * slack
      yield* work.record([result(first!, { dueIn }), result(second!, { dueIn: 2 * dueIn, priority: 0 })])
      assert.approximately(Option.getOrThrow(yield* work.nextDueIn([{ kind, pool: anyPool }])), dueIn, slack)
      yield* store.advance(dueIn + 1)
      assert.isAtMost(
        Option.getOrThrow(
          yield* work.nextDueIn([
            { kind, pool: anyPool },
            { kind: "Unknown", pool: anyPool }
          ])
        ),
        0
      )
    })
  )

  it.effect("the queue's depth, what is due and the oldest of it are told by kind", () =>
    Effect.gen(function* () {
      const { work, store, kind, make, claim } = yield* setting
      for (let i = 0; i < 3; i++) yield* make()
      yield* work.record([result((yield* claim(1))[0]!)])
      yield* store.advance(5 * slack)
      const mine = (yield* work.stats).find((one) => one.kind === kind)
      assert.deepInclude(mine, { depth: 3, due: 2 })
      assert.approximately(mine?.oldestDueMs ?? 0, 5 * slack, slack)
    })
  )
}
