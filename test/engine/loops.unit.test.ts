/** What the loops of the worker do when the program itself is at fault. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Queue from "effect/Queue"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { defaults, EngineOptions, ServedRegion } from "#src/engine/options.ts"
import { Registry } from "#src/engine/Reconciler.ts"
import * as Worker from "#src/engine/Worker.ts"
import { WorkStore } from "#src/engine/WorkStore.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import { makeWorld, toyLayer, type World } from "#test/setup/toy-kind.ts"
import { eventually } from "#test/setup/wait.ts"
import { MemoryStore, workStore } from "./memory-work-store.ts"

const options: EngineOptions = {
  ...defaults,
  leaseMs: 300,
  heartbeatMs: 50,
  pollMs: 50,
  runMs: 100,
  drainMs: 100,
  backoffMs: [20, 100]
}

const makeStore = () => {
  const store = new MemoryStore(() => performance.now())
  const create = (uid: string) =>
    assert.isTrue(
      store.create({
        orgId: "org",
        uid,
        kind: "Cache",
        projectId: null,
        name: uid,
        parentUid: null,
        spec: { size: 3 },
        secrets: []
      })
    )
  return { store, create }
}

/** A process: it ends with the scope. */
const start = (world: World, store: WorkStore["Service"], logs: Array<string> = []) => {
  const logger = Logger.make((entry) => void logs.push(`${entry.logLevel}: ${String(entry.message)}`))
  return Layer.build(
    Worker.layer.pipe(
      Layer.provide(toyLayer(world)),
      Layer.provide(Registry.layer),
      Layer.provide(Layer.succeed(WorkStore, store)),
      Layer.provide(
        Layer.effect(
          Worker.WorkSignal,
          Effect.map(Queue.unbounded<void>(), (queue) => Stream.fromQueue(queue))
        )
      ),
      Layer.provide(
        Layer.effect(
          Worker.MemberSignal,
          Effect.map(Queue.unbounded<void>(), (queue) => Stream.fromQueue(queue))
        )
      ),
      Layer.provide(Layer.succeed(EngineOptions, options)),
      Layer.provide(Logger.layer([logger]))
    )
  )
}

const happens = (what: string, holds: () => boolean) => eventually(what, Effect.sync(holds))

/** A bug, and a call that ends because something else was interrupted. */
const faultsOfTheProgram = { "a defect": Effect.die(new Error("a bug")), "an interruption": Effect.interrupt }
/** And a store that is asked and never answers, as when the network loses the connection without a word. */
const faults = { ...faultsOfTheProgram, silence: Effect.never }

for (const call of ["claim", "heartbeat", "record", "nextDueIn"] as const) {
  for (const [name, fault] of Object.entries(faults))
    it.live(
      `${name} in ${call} is told and ends nothing`,
      () =>
        Effect.gen(function* () {
          const world = makeWorld()
          const { store, create } = makeStore()
          const logs: Array<string> = []
          let faults = 0
          const sound = workStore(store)
          const strike = <A, E>(name: string, self: Effect.Effect<A, E>) =>
            Effect.suspend(() =>
              // Not before there is something to lose.
              name === call && store.work.size > 0 && faults++ < 2 ? fault : self
            )
          const faulty: WorkStore["Service"] = {
            ...sound,
            claim: (rooms, leaseMs) => strike("claim", sound.claim(rooms, leaseMs)),
            heartbeat: (leases, leaseMs) => strike("heartbeat", sound.heartbeat(leases, leaseMs)),
            record: (results) => strike("record", sound.record(results)),
            nextDueIn: (kinds) => strike("nextDueIn", sound.nextDueIn(kinds))
          }
          yield* start(world, faulty, logs)
          create("one")
          yield* happens("the faults have struck", () => faults >= 3)
          create("two")
          yield* happens("both are ready", () =>
            ["one", "two"].every((uid) => store.resources.get(uid)?.phase === "ready")
          )
          const level = name === "silence" ? "Warn" : "Error"
          assert.isNotEmpty(logs.filter((line) => line.startsWith(level) && line.includes("trying again")))
        }).pipe(Effect.scoped),
      // Each waits for timeouts most of its time.
      { concurrent: true }
    )
}

it.live("a process works on its own region only, and on what is anybody's", () =>
  Effect.gen(function* () {
    const { store } = makeStore()
    const create = (uid: string, region: string) =>
      store.create({
        orgId: "org",
        uid,
        kind: "Cache",
        projectId: null,
        name: uid,
        parentUid: null,
        spec: { size: 3, region },
        secrets: []
      })
    const [east, west] = [makeWorld(), makeWorld()]
    const serve = (world: World, region: string) =>
      Effect.provideService(start(world, workStore(store)), ServedRegion, region)
    const phase = (uid: string) => store.resources.get(uid)?.phase
    yield* serve(east, "east")
    create("far", "west")
    create("near", "east")
    yield* happens("the first has made its own", () => phase("near") === "ready")
    assert.strictEqual(phase("far"), "pending")
    yield* serve(west, "west")
    yield* happens("the second has made the other", () => phase("far") === "ready")
    assert.deepStrictEqual([...east.things.keys(), ...west.things.keys()], ["near", "far"])
    assert.isFalse(east.log.some(({ uid }) => uid === "far"))
    assert.isFalse(west.log.some(({ uid }) => uid === "near"))
  }).pipe(Effect.scoped)
)

it.live(
  "a run that cannot be interrupted loses its lease, and another process goes on; stopping does not wait",
  () =>
    Effect.gen(function* () {
      const { store, create } = makeStore()
      const stuck = makeWorld()
      stuck.behave = () => Effect.uninterruptible(Effect.never)
      const first = yield* Scope.make()
      yield* Effect.provideService(start(stuck, workStore(store)), Scope.Scope, first)
      create("one")
      yield* happens("it hangs", () => stuck.log.length > 0)
      const world = makeWorld()
      yield* start(world, workStore(store))
      yield* happens("another takes over", () => store.resources.get("one")?.phase === "ready")
      yield* Effect.timeout(Scope.close(first, Exit.void), "30 seconds")
    }).pipe(Effect.scoped)
)

it.live("a store that takes no cascade gets back what was claimed beyond a share all the same", () =>
  Effect.gen(function* () {
    const { store, create } = makeStore()
    const sound = workStore(store)
    const released: Array<string> = []
    const faulty: WorkStore["Service"] = {
      ...sound,
      cascade: () => Effect.fail(new StoreUnavailable({ message: "It is away" })),
      release: (leases) => {
        released.push(...leases.map(({ uid }) => uid))
        return sound.release(leases)
      }
    }
    const world = makeWorld()
    world.behave = () => Effect.never
    // More than the share of one organization, each a container whose deletion something in it has slipped past.
    const uids = Array.from({ length: 65 }, (_, i) => `box-${i}`)
    for (const uid of uids) {
      create(uid)
      store.resources.set(`in-${uid}`, { ...store.resources.get(uid)!, uid: `in-${uid}`, parentUid: uid })
      store.resources.get(uid)!.deleting = true
      // Asked for a while ago, so that one claim takes them all.
      const row = store.work.get(uid)!
      row.dueAt -= 1_000
      row.rank -= 1_000
    }
    yield* start(world, faulty)
    yield* happens("some are given back", () => released.length > 0)
  }).pipe(Effect.scoped)
)

it.live("a run that ends in an interruption of its own is tried again like one that failed", () =>
  Effect.gen(function* () {
    const { store, create } = makeStore()
    const world = makeWorld()
    world.behave = () => (world.log.length < 3 ? Effect.interrupt : Effect.void)
    yield* start(world, workStore(store))
    create("one")
    yield* happens("it is ready", () => store.resources.get("one")?.phase === "ready")
    assert.isAtLeast(world.log.length, 3)
  }).pipe(Effect.scoped)
)

it.live("a process that stops gives no lease back whose run it could not end", () =>
  Effect.gen(function* () {
    const { store, create } = makeStore()
    const stuck = makeWorld()
    stuck.behave = (_, { uid }) => (uid === "hangs" ? Effect.uninterruptible(Effect.never) : Effect.never)
    const scope = yield* Scope.make()
    yield* Effect.provideService(start(stuck, workStore(store)), Scope.Scope, scope)
    create("hangs")
    create("waits")
    yield* happens("both have run", () => new Set(stuck.log.map(({ uid }) => uid)).size === 2)
    yield* Effect.timeout(Scope.close(scope, Exit.void), "30 seconds")
    assert.isNotNull(store.work.get("hangs")!.leaseToken)
    assert.isNull(store.work.get("waits")!.leaseToken)
  })
)
