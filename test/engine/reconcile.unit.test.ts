import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { defaults } from "#src/engine/options.ts"
import { Registry, Retryable } from "#src/engine/Reconciler.ts"
import { reconcile } from "#src/engine/reconcile.ts"
import type { Claimed } from "#src/engine/WorkStore.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { makeWorld, toyLayer, type World } from "#test/setup/toy-kind.ts"

const driftMs = 60_000
/** Jitter included. */
const mostMs = driftMs * 1.1

const claimedOf = (values: Partial<Claimed>): Claimed => ({
  orgId: uuid(),
  uid: "one",
  token: 1n,
  kind: "Cache",
  projectId: uuid(),
  environment: "production",
  name: "one",
  parentUid: null,
  spec: { size: 1 },
  generation: 1,
  status: { size: 1 },
  facts: {},
  observedGeneration: 1,
  phase: "ready",
  phaseAge: 0,
  settled: false,
  reported: { conditions: [], differences: [] },
  deleting: false,
  attempt: 0,
  lateBy: 0,
  retryToken: null,
  paused: null,
  children: null,
  seen: "1:1:",
  now: 0,
  ...values
})

const run = (world: World, claimed: Claimed) =>
  Effect.gen(function* () {
    const registration = (yield* Registry).registrations.get("Cache")
    if (registration === undefined) return yield* Effect.die("no reconciler is registered")
    return yield* reconcile(registration, claimed, defaults)
  }).pipe(
    Effect.provide(toyLayer(world, { driftInterval: driftMs, concurrency: 1 })),
    Effect.provide(Registry.layer)
  )

const failing = (what: "observe" | "converge"): World => {
  const world = makeWorld()
  world.things.set("one", 1)
  world.behave = (now) =>
    now === what ? Effect.fail(new Retryable({ message: "The far end does not answer" })) : Effect.void
  return world
}

it.effect("a look that fails at what was there is repeated within its drift interval, however often", () =>
  Effect.gen(function* () {
    for (const attempt of [0, 6, defaults.stallAfter, 100])
      for (const phase of ["ready", "updating", "failed"] as const) {
        const { outcome, recorded } = yield* run(failing("observe"), claimedOf({ attempt, phase }))
        assert.strictEqual(outcome, "retryable")
        assert.isAtMost(recorded.dueIn, mostMs)
        const ready = recorded.change?.conditions.find(({ type }) => type === "Ready")
        const seconds = Number(/again in (\d+) s/.exec(ready?.message ?? "")?.[1])
        assert.isAtMost(seconds, mostMs / 1000)
      }
  })
)

it.effect(
  "what has taken too long and may recover without a step is looked at within its drift interval",
  () =>
    Effect.gen(function* () {
      const world = makeWorld()
      world.things.set("one", 1)
      world.asides.set("one", { ready: false, pollAfter: "5 seconds" })
      const claimed = claimedOf({ phase: "updating", phaseAge: 3_600_000 })
      const { outcome, recorded } = yield* run(world, claimed)
      assert.strictEqual(outcome, "progressing")
      assert.strictEqual(recorded.change?.phase, "failed")
      assert.isAtLeast(recorded.dueIn, driftMs * 0.9)
      assert.isAtMost(recorded.dueIn, mostMs)
    })
)

it.effect("what fails at a step, or was never there, is tried ever more rarely", () =>
  Effect.gen(function* () {
    const attempt = 100
    const step = yield* run(failing("converge"), claimedOf({ attempt, spec: { size: 2 } }))
    assert.isAbove(step.recorded.dueIn, 600_000)
    const never = yield* run(
      failing("observe"),
      claimedOf({ attempt, status: null, facts: {}, phase: "provisioning" })
    )
    assert.isAbove(never.recorded.dueIn, 600_000)
  })
)
