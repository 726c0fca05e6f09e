/** What many people ask for within a moment is claimed together, and what one asks for alone at once. */
import { assert, it } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import * as Layer from "effect/Layer"
import * as Queue from "effect/Queue"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/testing/TestClock"
import { defaults, EngineOptions } from "#src/engine/options.ts"
import { Registry } from "#src/engine/Reconciler.ts"
import * as Worker from "#src/engine/Worker.ts"
import { WorkStore } from "#src/engine/WorkStore.ts"
import { makeWorld, toyLayer } from "#test/setup/toy-kind.ts"
import { MemoryStore, workStore } from "./memory-work-store.ts"

it.effect("changes wait for the runs before them, and not for long", () =>
  Effect.gen(function* () {
    const clock = yield* Clock.Clock
    const store = new MemoryStore(() => clock.currentTimeMillisUnsafe())
    const announced = yield* Queue.unbounded<void>()
    const sound = workStore(store)
    /** How many resources each claim found, and when. */
    const claims: Array<{ readonly at: number; readonly found: number }> = []
    const counted: WorkStore["Service"] = {
      ...sound,
      claim: (rooms, leaseMs) =>
        Effect.tap(sound.claim(rooms, leaseMs), (claimed) =>
          Effect.sync(() => {
            if (claimed.length > 0)
              claims.push({ at: clock.currentTimeMillisUnsafe(), found: claimed.length })
          })
        )
    }
    const world = makeWorld()
    const going = Latch.makeUnsafe(true)
    world.behave = () => going.await
    yield* Layer.build(
      Worker.layer.pipe(
        Layer.provide(toyLayer(world)),
        Layer.provide(Registry.layer),
        Layer.provide(Layer.succeed(WorkStore, counted)),
        Layer.provide(Layer.succeed(Worker.WorkSignal, Stream.fromQueue(announced))),
        Layer.provide(Layer.succeed(Worker.MemberSignal, Stream.never)),
        Layer.provide(Layer.succeed(EngineOptions, defaults))
      )
    )
    yield* TestClock.adjust("10 seconds")
    let made = 0
    const askThen = Effect.fnUntraced(function* (ms: number) {
      const uid = `one-${made++}`
      const plain = { uid, kind: "Cache", projectId: null, name: uid, parentUid: null, secrets: [] }
      assert.isTrue(store.create({ orgId: `org-${uid}`, ...plain, spec: { size: 3 } }))
      yield* Queue.offer(announced, undefined)
      // Until everybody who has heard of it waits again.
      yield* Effect.repeat(Effect.yieldNow, { times: 100 })
      yield* TestClock.adjust(ms)
    })
    going.closeUnsafe()
    const begun = clock.currentTimeMillisUnsafe()
    yield* Effect.repeat(askThen(1), { times: 19 })
    const many = claims.splice(0)
    // They end, and whoever asks then waits for nobody.
    going.openUnsafe()
    yield* TestClock.adjust("1 seconds")
    const alone = clock.currentTimeMillisUnsafe()
    yield* Effect.repeat(askThen(4), { times: 2 })
    yield* TestClock.adjust("1 seconds")
    assert.deepStrictEqual(many, [
      { at: begun, found: 1 },
      { at: begun + 10, found: 9 },
      { at: begun + 20, found: 10 }
    ])
    assert.deepStrictEqual(claims, [
      { at: alone, found: 1 },
      { at: alone + 4, found: 1 },
      { at: alone + 8, found: 1 }
    ])
  }).pipe(Effect.scoped)
)
