/** What the engine does with results that the store cannot hold. The store is Postgres; the results are spoilt on their way. */
import { assert, it } from "@effect/vitest"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { defaults, EngineOptions } from "#src/engine/options.ts"
import { Registry, Retryable } from "#src/engine/Reconciler.ts"
import * as Worker from "#src/engine/Worker.ts"
import { type Recorded, WorkStore } from "#src/engine/WorkStore.ts"
import { Db } from "#src/store/Db.ts"
import { Interventions } from "#src/store/Interventions.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import * as Work from "#src/store/Work.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, cacheChange, makeOrganization, makeProject } from "#test/setup/fixtures.ts"
import { makeWorld, toyLayer, type World } from "#test/setup/toy-kind.ts"
import { eventually } from "#test/setup/wait.ts"

const options: EngineOptions = {
  ...defaults,
  pollMs: 200,
  leaseMs: 600_000,
  backoffMs: [20, 600_000],
  stalledRetryMs: 300
}

/** Results pass `spoil` before they are stored, and the store's answer passes `answer`. */
const engine = (
  world: World,
  spoil: (result: Recorded) => Recorded = (result) => result,
  answer: <A>(kept: A) => Effect.Effect<A, StoreUnavailable> = Effect.succeed,
  driftInterval: Duration.Input = "1 hour"
) =>
  Worker.layer.pipe(
    Layer.provide(toyLayer(world, { driftInterval, concurrency: 64 })),
    Layer.provide(Registry.layer),
    Layer.provide(
      Layer.effect(
        WorkStore,
        Effect.map(WorkStore, (store) => ({
          ...store,
          record: (results: ReadonlyArray<Recorded>) =>
            Effect.flatMap(store.record(results.map(spoil)), answer)
        }))
      )
    ),
    Layer.provide(Work.layer),
    Layer.provide(Work.signal),
    Layer.provide(Layer.succeed(EngineOptions, options))
  )

const store = Layer.merge(Resources.layer, Interventions.layer).pipe(
  Layer.provideMerge(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb())
)

const makeSome = Effect.fn(function* (count: number) {
  const org = yield* makeOrganization()
  const place = yield* makeProject(org.id, "shop")
  const changes = Array.from({ length: count }, (_, i) => cacheChange(place, `c-${i}`, { size: 1 }))
  const resources = yield* Resources
  const find = (uid: string) => Effect.map(resources.get(org.id, uid), Option.getOrThrow)
  return { orgId: org.id, changes, find, write: resources.write(org.id, changes, actor) }
})

const until = <A, E, R>(self: Effect.Effect<A, E, R>, holds: (value: A) => boolean) =>
  eventually("it is recorded", self, holds)

it.live("a result that the store refuses is stored as a failed try, and all others as they are", () =>
  Effect.gen(function* () {
    const { changes, find, write } = yield* makeSome(9)
    const bad = changes[4]!.uid
    let spoilt = true
    const spoil = (result: Recorded): Recorded =>
      spoilt && result.lease.uid === bad && result.change?.phase === "ready"
        ? { ...result, change: { ...result.change, status: { text: "\0" } } }
        : result
    yield* write
    yield* Effect.gen(function* () {
      for (const { uid } of changes) if (uid !== bad) yield* until(find(uid), (row) => row.phase === "ready")
      const failed = yield* until(find(bad), (row) => row.attempt >= 2)
      assert.strictEqual(failed.lastError, "What was found cannot be stored; the log tells why")
      const ready = failed.conditions.find((condition) => condition.type === "Ready")
      assert.strictEqual(ready?.reason, "ReconcileFailed")
      spoilt = false
      yield* (yield* Interventions).retry(failed.orgId, bad, actor)
      yield* until(find(bad), (row) => row.phase === "ready")
    }).pipe(Effect.provide(engine(makeWorld(), spoil)))
  }).pipe(Effect.provide(store))
)

it.live("what cannot be stored in any form gives its lease back, and is due again only later", () =>
  Effect.gen(function* () {
    const { orgId, changes, find, write } = yield* makeSome(5)
    const bad = changes[2]!.uid
    const spoil = (result: Recorded): Recorded =>
      result.lease.uid === bad && result.change !== undefined
        ? { ...result, change: { ...result.change, conditions: [], status: { text: "\ud800" } } }
        : result
    const { engine: sql } = yield* Db
    const queued = Effect.map(
      sql<{ readonly leased: boolean; readonly later: boolean }>`
        select lease_token is not null as leased, due_at > now() + interval '5 minutes' as later
        from work where org_id = ${orgId}::uuid and uid = ${bad}::uuid`,
      ([row]) => row
    )
    yield* write
    yield* Effect.gen(function* () {
      for (const { uid } of changes) if (uid !== bad) yield* until(find(uid), (row) => row.phase === "ready")
      yield* until(queued, (row) => row?.leased === false && row.later)
    }).pipe(Effect.provide(engine(makeWorld(), spoil)))
  }).pipe(Effect.provide(store))
)

it.live("what a far end says is stored without the characters that the store refuses", () =>
  Effect.gen(function* () {
    const { orgId, changes, find, write } = yield* makeSome(1)
    const { uid } = changes[0]!
    const world = makeWorld()
    world.behave = (what) =>
      what === "converge"
        ? Effect.fail(new Retryable({ message: `It said \0 and \ud800 ${"at length ".repeat(1_000)}` }))
        : Effect.void
    yield* write
    yield* Effect.gen(function* () {
      const failed = yield* until(find(uid), (row) => row.attempt > 0)
      assert.match(failed.lastError ?? "", /^It said {2}and \ufffd at length/)
      assert.isAtMost(failed.lastError?.length ?? 0, 2_000)
      const events = yield* (yield* Resources).events(orgId, uid, 50)
      assert.isTrue(events.some((event) => event.message === failed.lastError))
    }).pipe(Effect.provide(engine(world)))
  }).pipe(Effect.provide(store))
)

it.live("what was stored without the process hearing of it is looked at all the same", () =>
  Effect.gen(function* () {
    const { changes, find, write } = yield* makeSome(3)
    const world = makeWorld()
    let lost = false
    const answer = <A>(kept: A) => {
      if (lost || world.things.size < changes.length) return Effect.succeed(kept)
      lost = true
      return Effect.fail(new StoreUnavailable({ message: "The answer was lost" }))
    }
    yield* write
    yield* Effect.gen(function* () {
      for (const { uid } of changes) yield* until(find(uid), (row) => row.phase === "ready")
      yield* until(
        Effect.sync(() => lost),
        (isLost) => isLost
      )
      for (const { uid } of changes) world.things.set(uid, 9)
      yield* until(
        Effect.sync(() => changes.map(({ uid }) => world.things.get(uid))),
        (sizes) => sizes.every((size) => size === 1)
      )
    }).pipe(Effect.provide(engine(world, undefined, answer, "500 millis")))
  }).pipe(Effect.provide(store))
)
