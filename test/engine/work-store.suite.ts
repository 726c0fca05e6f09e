/**
 * What every implementation of `WorkStore` promises the engine. Postgres keeps these promises in production; the model
 * in memory keeps them in the simulation, which is what makes the simulation worth something.
 *
 * Each test works on kinds and organizations of its own, so they may share one store. Nothing sleeps: time moves when
 * `StoreUnderTest.advance` says so.
 */
import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type { Json } from "#schemas/kind.ts"
import {
  type Claimed,
  type KindRoom,
  type Recorded,
  type StatusChange,
  WorkStore
} from "#src/engine/WorkStore.ts"
import type { PauseTarget } from "#src/store/Interventions.ts"
import { uuid } from "#test/setup/fixtures.ts"

export interface NewResource {
  readonly uid: string
  readonly kind: string
  readonly projectId: string | null
  readonly name: string
  readonly parentUid: string | null
  readonly spec: Json
  /** Fields whose secrets are stored with it. */
  readonly secrets: ReadonlyArray<string>
}

/** What is stored about one resource; null where there is nothing any more. */
export interface Stored {
  readonly resource: {
    readonly generation: number
    readonly revision: bigint
    readonly status: Json | null
    readonly phase: string
    readonly observedGeneration: number
    readonly deleting: boolean
  } | null
  readonly work: {
    /** Milliseconds. */
    readonly dueIn: number
    readonly leased: boolean
    readonly attempt: number
    readonly lastError: string | null
    readonly waitingOn: string | null
    readonly handledRetry: string | null
  } | null
  readonly secrets: number
}

/** The other sides of the store: users, time, and a look at what it holds. */
export class StoreUnderTest extends Context.Service<
  StoreUnderTest,
  {
    readonly makeOrganization: Effect.Effect<string>
    readonly create: (orgId: string, resource: NewResource) => Effect.Effect<void>
    readonly update: (orgId: string, uid: string, spec: Json) => Effect.Effect<void>
    readonly delete: (orgId: string, uid: string) => Effect.Effect<void>
    readonly retry: (orgId: string, uid: string) => Effect.Effect<string>
    readonly pause: (orgId: string, target: PauseTarget, forMs: number | null) => Effect.Effect<void>
    readonly resume: (orgId: string, target: PauseTarget) => Effect.Effect<void>
    /** Takes back that deletion was asked for: what a creation that slipped past it leaves. */
    readonly spare: (orgId: string, uid: string) => Effect.Effect<void>
    readonly advance: (ms: number) => Effect.Effect<void>
    readonly stored: (orgId: string, uid: string) => Effect.Effect<Stored>
  }
>()("test/engine/StoreUnderTest") {}

const leaseMs = 30_000
const hour = 3_600_000

/** A kind and an organization that no other test knows. */
const setting = Effect.gen(function* () {
  const work = yield* WorkStore
  const store = yield* StoreUnderTest
  const orgId = yield* store.makeOrganization
  const kind = `Kind${uuid().slice(-12)}`
  const make = Effect.fnUntraced(function* (options: Partial<NewResource> & { readonly org?: string } = {}) {
    const { org = orgId, ...given } = options
    const uid = uuid()
    const plain = {
      uid,
      kind,
      projectId: null,
      name: `r-${uid.slice(-12)}`,
      parentUid: null,
      spec: { size: 1 }
    }
    yield* store.create(org, { ...plain, secrets: [], ...given })
    return uid
  })
  const room = (n: number, fullOrgs: ReadonlyArray<string> = []): ReadonlyArray<KindRoom> => [
    { kind, room: n, fullOrgs }
  ]
  const claim = (n = 100) => work.claim(room(n), leaseMs)
  const claimUids = (n = 100) => Effect.map(claim(n), (claimed) => claimed.map((one) => one.uid))
  /** Claims exactly this one, whatever else is due. */
  const take = (uid: string) => Effect.map(work.claimOne(orgId, uid, leaseMs), Option.getOrThrow)
  const stored = (uid: string) => store.stored(orgId, uid)
  return { work, store, orgId, kind, make, room, claim, claimUids, take, stored }
})

const ready = (claimed: Claimed): StatusChange => ({
  status: { size: 1 },
  phase: "ready",
  conditions: [],
  differences: [],
  observedGeneration: claimed.generation,
  settled: true,
  deleting: claimed.deleting,
  gone: false,
  events: []
})
const gone = (claimed: Claimed): StatusChange => ({
  ...ready(claimed),
  status: null,
  phase: "deleted",
  settled: false,
  gone: true
})
const waiting = (claimed: Claimed): StatusChange => ({ ...ready(claimed), phase: "waiting", settled: false })

/** A routine result that changed something, unless told otherwise. */
const result = (claimed: Claimed, more: Partial<Recorded> = {}): Recorded => ({
  lease: { orgId: claimed.orgId, uid: claimed.uid, token: claimed.token },
  dueIn: hour,
  priority: 2,
  attempt: 0,
  waitingOn: null,
  seen: claimed.seen,
  lastError: null,
  handledRetry: claimed.retryToken,
  change: ready(claimed),
  ...more
})
const waitsFor = (claimed: Claimed, on: string) =>
  result(claimed, { waitingOn: on, change: waiting(claimed), priority: 1 })

const only = (claimed: ReadonlyArray<Claimed>): Claimed => {
  assert.lengthOf(claimed, 1)
  return claimed[0]!
}
const uidsOf = (leases: ReadonlyArray<{ readonly uid: string }>) => leases.map((lease) => lease.uid)

export const workStoreSuite = <E>(
  name: string,
  implementation: Layer.Layer<WorkStore | StoreUnderTest, E>
): void =>
  layer(implementation, { excludeTestServices: true })(`the engine's store ${name}`, (it) => {
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
        assert.deepStrictEqual(yield* reported, { conditions: [], differences: [] })
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
        yield* work.record(all.map((one) => result(one, { dueIn: 1_000, priority: priority(one.uid) })))
        yield* store.advance(5_000)
        yield* store.update(orgId, changed, { size: 2 })
        assert.deepStrictEqual(yield* claimUids(1), [changed])
        assert.deepStrictEqual(yield* claimUids(1), [retried])
        assert.deepStrictEqual(yield* claimUids(1), [routine])
        assert.deepStrictEqual(yield* claimUids(1), [])
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
        assert.isBelow(last.lateBy, 10_000)
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
            { kind, room: 2, fullOrgs: [] },
            { kind: second, room: 1, fullOrgs: [] }
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
        assert.isTrue(Option.isNone(yield* work.claimOne(orgId, uid, leaseMs)))
        yield* store.advance(leaseMs - 5_000)
        assert.lengthOf(yield* claim(), 0)
        yield* store.advance(6_000)
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
        yield* store.advance(leaseMs - 5_000)
        assert.deepStrictEqual(uidsOf(yield* work.heartbeat([kept!, lost!], leaseMs)), [kept!.uid])
        yield* store.advance(leaseMs - 5_000)
        assert.lengthOf(yield* claim(), 0)
        yield* store.advance(6_000)
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

    it.effect("a result is stored, gives the lease back and says when it is due again", () =>
      Effect.gen(function* () {
        const { work, store, make, claim, stored } = yield* setting
        const uid = yield* make()
        const claimed = only(yield* claim())
        const before = yield* stored(uid)
        const kept = yield* work.record([
          result(claimed, {
            dueIn: 10_000,
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
        assert.approximately(queued?.dueIn ?? 0, 10_000, 2_000)
        assert.lengthOf(yield* claim(), 0)
        yield* store.advance(10_001)
        const again = only(yield* claim())
        assert.strictEqual(again.attempt, 3)
        assert.strictEqual(again.phase, "provisioning")
        assert.isAtLeast(again.phaseAge, 10_000)
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
        assert.deepStrictEqual(yield* settled.reported, { conditions: [], differences: [] })
        assert.lengthOf(yield* work.record([result(settled, { dueIn: 5_000, change: undefined })]), 1)
        const after = yield* stored(uid)
        assert.deepStrictEqual(after.resource, before.resource)
        assert.isFalse(after.work?.leased)
        assert.lengthOf(yield* claim(), 0)
        yield* store.advance(5_001)
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
        assert.isTrue(Option.isNone(yield* work.claimOne(orgId, child, leaseMs)))
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
        assert.isTrue(Option.isNone(yield* work.claimOne(orgId, uid, leaseMs)))
        yield* store.advance(leaseMs + 1_000)
        assert.isTrue(Option.isSome(yield* work.claimOne(orgId, uid, leaseMs)))
        assert.isTrue(Option.isNone(yield* work.claimOne(orgId, uuid(), leaseMs)))
        const elsewhere = yield* store.makeOrganization
        assert.isTrue(Option.isNone(yield* work.claimOne(elsewhere, yield* make(), leaseMs)))
      })
    )

    it.effect("the store tells when something is due next", () =>
      Effect.gen(function* () {
        const { work, store, kind, make, claim } = yield* setting
        assert.isTrue(Option.isNone(yield* work.nextDueIn([kind])))
        assert.isTrue(Option.isNone(yield* work.nextDueIn([])))
        yield* make()
        yield* make()
        assert.isAtMost(Option.getOrThrow(yield* work.nextDueIn([kind])), 0)
        const [first, second] = yield* claim()
        yield* work.record([
          result(first!, { dueIn: 20_000 }),
          result(second!, { dueIn: 40_000, priority: 0 })
        ])
        assert.approximately(Option.getOrThrow(yield* work.nextDueIn([kind])), 20_000, 2_000)
        yield* store.advance(21_000)
        assert.isAtMost(Option.getOrThrow(yield* work.nextDueIn([kind, "Unknown"])), 0)
      })
    )

    it.effect("the queue's depth, what is due and the oldest of it are told by kind", () =>
      Effect.gen(function* () {
        const { work, store, kind, make, claim } = yield* setting
        for (let i = 0; i < 3; i++) yield* make()
        yield* work.record([result((yield* claim(1))[0]!)])
        yield* store.advance(3_000)
        const mine = (yield* work.stats).find((one) => one.kind === kind)
        assert.deepInclude(mine, { depth: 3, due: 2 })
        assert.approximately(mine?.oldestDueMs ?? 0, 3_000, 2_000)
      })
    )

    it.effect("deletion asked for during a run is not overwritten by what the run records", () =>
      Effect.gen(function* () {
        const { work, store, orgId, make, take, claim, stored } = yield* setting
        const uid = yield* make()
        const unaware = yield* take(uid)
        yield* store.delete(orgId, uid)
        yield* work.record([result(unaware)])
        const { resource } = yield* stored(uid)
        assert.strictEqual(resource?.phase, "deleting")
        assert.isTrue(resource?.deleting)
        const next = only(yield* claim())
        assert.isTrue(next.deleting)
        assert.isFalse(next.settled)
        assert.deepStrictEqual(next.children, { count: 0, notDeleting: 0, first: "" })
      })
    )

    it.effect("what slipped into a container that is being deleted is deleted with it", () =>
      Effect.gen(function* () {
        const { work, store, orgId, kind, make, take, claimUids, stored } = yield* setting
        const parent = yield* make()
        const idle = yield* make({ parentUid: parent, name: "idle" })
        const busy = yield* make({ parentUid: parent, name: "busy" })
        yield* store.delete(orgId, parent)
        for (const uid of [idle, busy]) {
          yield* store.spare(orgId, uid)
          yield* work.record([result(yield* take(uid))])
        }
        const running = yield* take(busy)
        const above = yield* take(parent)
        assert.deepStrictEqual(above.children, { count: 2, notDeleting: 2, first: `${kind} "busy"` })
        yield* work.cascade(orgId, parent)
        assert.deepStrictEqual(yield* claimUids(), [idle])
        yield* work.record([result(running)])
        assert.deepStrictEqual(yield* claimUids(), [busy])
        assert.isTrue((yield* stored(busy)).resource?.deleting)
        assert.strictEqual((yield* stored(busy)).resource?.phase, "deleting")
      })
    )

    it.effect("a pause is seen by the next run, whatever it covers, until it ends", () =>
      Effect.gen(function* () {
        const { work, store, orgId, kind, make, claim } = yield* setting
        const projectId = uuid()
        const uid = yield* make({ projectId })
        yield* work.record([result(only(yield* claim()))])
        const targets: ReadonlyArray<PauseTarget> = [
          { scope: "resource", target: uid },
          { scope: "project", target: projectId },
          { scope: "kind", target: kind },
          { scope: "organization", target: "" }
        ]
        for (const target of targets) {
          yield* store.pause(orgId, target, null)
          const paused = only(yield* claim())
          assert.isNull(paused.paused?.endsIn, target.scope)
          assert.isString(paused.paused?.by)
          assert.isString(paused.paused?.reason)
          yield* work.record([result(paused)])
          yield* store.resume(orgId, target)
          const resumed = only(yield* claim())
          assert.isNull(resumed.paused, target.scope)
          yield* work.record([result(resumed)])
        }
        yield* store.pause(orgId, targets[0]!, 60_000)
        const limited = only(yield* claim())
        assert.approximately(limited.paused?.endsIn ?? 0, 60_000, 2_000)
        yield* work.record([result(limited, { dueIn: 61_000 })])
        yield* store.advance(61_001)
        assert.isNull(only(yield* claim()).paused)
      })
    )

    it.effect("a pause elsewhere is not seen", () =>
      Effect.gen(function* () {
        const { store, orgId, make, claim } = yield* setting
        const other = yield* store.makeOrganization
        yield* make()
        yield* store.pause(other, { scope: "organization", target: "" }, null)
        yield* store.pause(orgId, { scope: "resource", target: uuid() }, null)
        yield* store.pause(orgId, { scope: "kind", target: "Another" }, null)
        assert.isNull(only(yield* claim()).paused)
      })
    )

    it.effect("a retry is acknowledged by the run that began after it, and by no other", () =>
      Effect.gen(function* () {
        const { work, store, orgId, make, take, claim, stored } = yield* setting
        const uid = yield* make()
        yield* work.record([result(yield* take(uid), { attempt: 5, waitingOn: uuid() })])
        const first = yield* store.retry(orgId, uid)
        const run = only(yield* claim())
        assert.strictEqual(run.retryToken, first)
        assert.strictEqual(run.attempt, 0)
        const second = yield* store.retry(orgId, uid)
        yield* work.record([result(run)])
        assert.strictEqual((yield* stored(uid)).work?.handledRetry, first)
        const next = only(yield* claim())
        assert.strictEqual(next.retryToken, second)
        yield* work.record([result(next)])
        assert.strictEqual((yield* stored(uid)).work?.handledRetry, second)
        const last = yield* take(uid)
        assert.isNull(last.retryToken)
        yield* work.record([result(last)])
        assert.strictEqual((yield* stored(uid)).work?.handledRetry, second)
      })
    )
  })
