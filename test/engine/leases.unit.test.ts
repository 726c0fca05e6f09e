/** What a run is told when it asks whether it still holds its lease. */
import { assert, it } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { readClocks } from "#src/engine/lease-clock.ts"
import { makeLeases, type Running } from "#src/engine/leases.ts"
import { defaults } from "#src/engine/options.ts"
import type { Lease } from "#src/engine/WorkStore.ts"
import { MemoryStore, workStore } from "./memory-work-store.ts"

/** A process with one run, whose lease ends after a second, and a store that answers as it is told. */
const oneRun = Effect.fnUntraced(function* (
  answers: ReadonlyArray<{ readonly sleeps: number; readonly holds: boolean }>
) {
  const real = yield* Clock.Clock
  let now = 0
  const clock: Clock.Clock = {
    ...real,
    currentTimeMillisUnsafe: () => now,
    monotonicTimeNanosUnsafe: () => BigInt(now) * 1_000_000n
  }
  const store = new MemoryStore(() => now)
  store.create({
    orgId: "org",
    uid: "one",
    kind: "Cache",
    projectId: null,
    name: "one",
    parentUid: null,
    spec: {},
    secrets: []
  })
  const [claimed] = store.claim([{ kind: "Cache", pool: "any", room: 1, fullOrgs: [] }], 1_000)
  if (claimed === undefined) return yield* Effect.die("nothing was claimed")
  let asked = 0
  const entry: Running = {
    claimed,
    startedAt: readClocks(clock),
    heldSince: readClocks(clock),
    lasting: false,
    fiber: undefined,
    busy: true,
    done: Deferred.makeUnsafe<void>()
  }
  const running = new Map([["one", entry]])
  const { gate } = makeLeases(
    running,
    { finished: () => {}, forget: () => running.delete("one"), lookLost: () => {} },
    {
      ...workStore(store),
      heartbeat: (leases: ReadonlyArray<Lease>) =>
        Effect.sync(() => {
          const answer = answers[asked++]
          now += answer?.sleeps ?? 0
          return answer?.holds === true ? leases : []
        })
    },
    { ...defaults, leaseMs: 1_000 },
    clock
  )
  const passed = Exit.isSuccess(
    yield* Effect.exit(Effect.forkChild(gate(entry)).pipe(Effect.flatMap(Fiber.join)))
  )
  return { passed, asked }
})

it.effect("asks once for a lease that it was just given", () =>
  Effect.gen(function* () {
    assert.deepStrictEqual(yield* oneRun([{ sleeps: 5, holds: true }]), { passed: true, asked: 1 })
    assert.deepStrictEqual(yield* oneRun([{ sleeps: 5, holds: false }]), { passed: false, asked: 1 })
  })
)

it.effect("asks again when the process slept for so long that the lease it was given may have ended", () =>
  Effect.gen(function* () {
    const slept = { sleeps: 5_000, holds: true }
    assert.deepStrictEqual(yield* oneRun([slept, { sleeps: 5, holds: false }]), { passed: false, asked: 2 })
    assert.deepStrictEqual(yield* oneRun([slept, { sleeps: 5, holds: true }]), { passed: true, asked: 2 })
  })
)
