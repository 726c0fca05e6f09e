import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as environment from "#reconcilers/environment.ts"
import * as project from "#reconcilers/project.ts"
import { ReconcileNow } from "#src/api/ReconcileNow.ts"
import { AppConfig } from "#src/config.ts"
import { EdgeSites } from "#src/edge/EdgeSites.ts"
import { defaults, EngineOptions } from "#src/engine/options.ts"
import { Registry, Retryable, Terminal } from "#src/engine/Reconciler.ts"
import * as Worker from "#src/engine/Worker.ts"
import { Db } from "#src/store/Db.ts"
import { Interventions } from "#src/store/Interventions.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import * as Work from "#src/store/Work.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, cacheChange, makeOrganization, makeProject } from "#test/setup/fixtures.ts"
import { makeWorld, toyLayer, type World } from "#test/setup/toy-kind.ts"
import { eventually } from "#test/setup/wait.ts"

const fast = { ...defaults, pollMs: 200, backoffMs: [20, 100], stallAfter: 4, stalledRetryMs: 300 } as const

const EngineLive = (world: World, options: EngineOptions = fast, concurrency = 64) =>
  ReconcileNow.layer.pipe(
    Layer.provideMerge(Worker.layer),
    Layer.provide(
      Layer.mergeAll(
        toyLayer(world, { driftInterval: "1 hour", concurrency }),
        project.layer,
        environment.layer.pipe(Layer.provide(EdgeSites.layer), Layer.provide(AppConfig.layerWith({})))
      )
    ),
    Layer.provide(Registry.layer),
    Layer.provide(Work.layer),
    Layer.provide(Work.signal),
    Layer.provide(Layer.succeed(EngineOptions, options))
  )

const Store = Layer.merge(Resources.layer, Interventions.layer).pipe(
  Layer.provideMerge(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb())
)

const withEngine = <A, E>(
  body: (world: World) => Effect.Effect<A, E, ReconcileNow | Resources | Interventions | Db>
) =>
  Effect.suspend(() => {
    const world = makeWorld()
    return body(world).pipe(Effect.provide(EngineLive(world)), Effect.provide(Store))
  })

const record = Effect.fn(function* (orgId: string, uid: string) {
  return Option.getOrUndefined(yield* (yield* Resources).get(orgId, uid))
})

it.live("what is written becomes real, and a second look changes nothing", () =>
  withEngine((world) =>
    Effect.gen(function* () {
      const engine = yield* ReconcileNow
      const resources = yield* Resources
      const org = yield* makeOrganization()
      const change = cacheChange(yield* makeProject(org.id, "shop"), "one", { size: 3 })
      yield* resources.write(org.id, [change], actor)
      const settled = yield* engine.reconcileNow(org.id, change.uid, "1 minute")
      assert.strictEqual(settled._tag, "Settled")
      assert.strictEqual(world.things.get(change.uid), 3)
      const before = yield* record(org.id, change.uid)
      assert.strictEqual(before?.phase, "ready")
      assert.deepStrictEqual(before?.status, { size: 3 })
      world.log.length = 0
      const again = yield* engine.reconcileNow(org.id, change.uid, "1 minute")
      assert.strictEqual(again._tag, "Settled")
      assert.deepStrictEqual(
        world.log.map((entry) => entry.what),
        ["observe"]
      )
      assert.strictEqual((yield* record(org.id, change.uid))?.revision, before?.revision)
    })
  )
)

it.live("a changed specification is acted on at once, without a call", () =>
  withEngine((world) =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const org = yield* makeOrganization()
      const change = cacheChange(yield* makeProject(org.id, "shop"), "one", { size: 3 })
      yield* resources.write(org.id, [change], actor)
      yield* eventually("made", record(org.id, change.uid), (row) => row?.phase === "ready")
      yield* resources.write(org.id, [{ action: "update", uid: change.uid, spec: { size: 5 } }], actor)
      const row = yield* eventually(
        "changed",
        record(org.id, change.uid),
        (now) => now?.observedGeneration === 2
      )
      assert.strictEqual(row?.phase, "ready")
      assert.strictEqual(world.things.get(change.uid), 5)
    })
  )
)

it.live("failures back off, say why, stall, and recover by themselves", () =>
  withEngine((world) =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const org = yield* makeOrganization()
      const change = cacheChange(yield* makeProject(org.id, "shop"), "one", { size: 3 })
      world.behave = (what) =>
        what === "converge" ? Effect.fail(new Retryable({ message: "The far end is on fire" })) : Effect.void
      yield* resources.write(org.id, [change], actor)
      const stalled = yield* eventually("stalled", record(org.id, change.uid), (row) =>
        Boolean(
          row?.conditions.some((condition) => condition.type === "Stalled" && condition.status === "true")
        )
      )
      assert.strictEqual(stalled?.lastError, "The far end is on fire")
      assert.isAtLeast(stalled?.attempt ?? 0, fast.stallAfter)
      const ready = stalled?.conditions.find((condition) => condition.type === "Ready")
      assert.strictEqual(ready?.reason, "ReconcileFailed")
      const events = yield* resources.events(org.id, change.uid, 50)
      const failure = events.find((event) => event.message === "The far end is on fire")
      assert.isAtLeast(failure?.count ?? 0, 2, "repeats are folded into a count")
      world.behave = () => Effect.void
      const row = yield* eventually("recovered", record(org.id, change.uid), (now) => now?.phase === "ready")
      assert.strictEqual(row?.attempt, 0)
      assert.isNull(row?.lastError ?? null)
    })
  )
)

it.live("what says itself when to try again is tried then, however often, and never stalls", () =>
  withEngine((world) =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const org = yield* makeOrganization()
      const change = cacheChange(yield* makeProject(org.id, "shop"), "one", { size: 3 })
      world.behave = (what) =>
        what === "converge"
          ? Effect.fail(new Retryable({ message: "It is away", reason: "Away", againAfterMs: 10 }))
          : Effect.void
      yield* resources.write(org.id, [change], actor)
      yield* eventually(
        "tried more often than what stalls",
        Effect.sync(() => world.log.filter(({ what }) => what === "converge").length),
        (tries) => tries > 3 * fast.stallAfter
      )
      const row = yield* record(org.id, change.uid)
      assert.strictEqual(row?.attempt, 0)
      const of = (type: string) => row?.conditions.find((condition) => condition.type === type)
      assert.notStrictEqual(of("Stalled")?.status, "true")
      assert.strictEqual(of("Ready")?.reason, "Away")
      world.behave = () => Effect.void
      yield* eventually("there", record(org.id, change.uid), (now) => now?.phase === "ready")
    })
  )
)

it.live("what cannot be satisfied is not tried again until the specification changes", () =>
  withEngine((world) =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const org = yield* makeOrganization()
      const change = cacheChange(yield* makeProject(org.id, "shop"), "one", { size: 3 })
      world.behave = (what, resource) =>
        what === "converge" && resource.spec.size === 3
          ? Effect.fail(new Terminal({ message: "Three is not a size" }))
          : Effect.void
      yield* resources.write(org.id, [change], actor)
      const failed = yield* eventually("failed", record(org.id, change.uid), (row) => row?.phase === "failed")
      assert.isAbove(failed!.nextAttemptAt!.getTime(), Date.now() + 86_400_000)
      yield* resources.write(org.id, [{ action: "update", uid: change.uid, spec: { size: 4 } }], actor)
      yield* eventually("ready", record(org.id, change.uid), (row) => row?.phase === "ready")
    })
  )
)

it.live(
  "what did not get ready in its time has failed, and stays so until it is ready or somebody asks",
  () =>
    withEngine((world) =>
      Effect.gen(function* () {
        const resources = yield* Resources
        const interventions = yield* Interventions
        const { engine: sql } = yield* Db
        const org = yield* makeOrganization()
        const change = cacheChange(yield* makeProject(org.id, "shop"), "one", { size: 3 })
        let broken = true
        world.behave = (what) =>
          what === "converge" && broken ? Effect.fail(new Retryable({ message: "It burns" })) : Effect.void
        yield* resources.write(org.id, [change], actor)
        yield* eventually("tried", record(org.id, change.uid), (row) => (row?.attempt ?? 0) > 0)
        yield* sql`update resource set phase_since = now() - interval '1 hour' where uid = ${change.uid}`
        const tries = () =>
          world.log.filter(({ uid, what }) => uid === change.uid && what === "converge").length
        const failed = yield* eventually(
          "failed",
          record(org.id, change.uid),
          (row) => row?.phase === "failed"
        )
        const conditionsOf = (row: typeof failed) =>
          row?.conditions.map(({ type, status, reason }) => [type, status, reason])
        const seen = new Set<string | undefined>()
        const begun = tries()
        yield* eventually("tried again", record(org.id, change.uid), (row) => {
          seen.add(row?.phase)
          assert.deepStrictEqual(conditionsOf(row), conditionsOf(failed))
          return tries() > begun + 3
        })
        assert.deepStrictEqual([...seen], ["failed"])
        assert.deepStrictEqual(
          conditionsOf(failed)?.find(([type]) => type === "Ready"),
          ["Ready", "false", "DeadlineExceeded"]
        )

        yield* interventions.retry(org.id, change.uid, actor)
        yield* eventually("on its way", record(org.id, change.uid), (row) => row?.phase === "provisioning")
        broken = false
        yield* eventually("ready", record(org.id, change.uid), (row) => row?.phase === "ready")
      })
    )
)

it.live("drift is reported and repaired", () =>
  withEngine((world) =>
    Effect.gen(function* () {
      const engine = yield* ReconcileNow
      const resources = yield* Resources
      const org = yield* makeOrganization()
      const change = cacheChange(yield* makeProject(org.id, "shop"), "one", { size: 3 })
      yield* resources.write(org.id, [change], actor)
      yield* eventually("made", record(org.id, change.uid), (row) => row?.phase === "ready")
      world.things.set(change.uid, 9)
      // The run that made it may be ending still, and then it is no new look.
      const look = engine.reconcileNow(org.id, change.uid, "1 minute")
      yield* eventually(
        "repaired",
        Effect.map(look, () => world.things.get(change.uid)),
        (size) => size === 3
      )
      const events = yield* eventually("told", resources.events(org.id, change.uid, 50), (list) =>
        list.some((event) => event.reason === "DriftRepaired")
      )
      const found = events.find((event) => event.reason === "DriftFound")
      assert.include(found?.message ?? "", "is 9 and should be 3")
    })
  )
)

it.live(
  "what is to be mended, or only told, leaves a resource ready, and is taken back when it is over",
  () =>
    withEngine((world) =>
      Effect.gen(function* () {
        const engine = yield* ReconcileNow
        const resources = yield* Resources
        const org = yield* makeOrganization()
        const change = cacheChange(yield* makeProject(org.id, "shop"), "one", { size: 3 })
        yield* resources.write(org.id, [change], actor)
        const steps = () => world.log.filter(({ what }) => what === "converge").length
        const readyFor = (reason: string) =>
          eventually(
            `ready for the reason ${reason}`,
            Effect.andThen(engine.reconcileNow(org.id, change.uid, "1 minute"), record(org.id, change.uid)),
            (row) =>
              row?.phase === "ready" &&
              row.conditions.some(
                (one) => one.type === "Ready" && one.status === "true" && one.reason === reason
              )
          )
        yield* readyFor("Converged")
        const before = steps()
        world.asides.set(change.uid, {
          maintenance: [{ field: "/standby", message: "is down" }],
          note: { reason: "StandbyDown", message: "A standby is down" }
        })
        yield* readyFor("StandbyDown")
        assert.strictEqual(steps(), before + 1)
        // Nobody asks: it looks again as soon as it said, although it is ready.
        world.asides.set(change.uid, { ...world.asides.get(change.uid), pollAfter: "20 millis" })
        yield* engine.reconcileNow(org.id, change.uid, "1 minute")
        const looks = world.log.length
        yield* eventually(
          "looked at again",
          Effect.sync(() => world.log.length),
          (now) => now > looks + 2
        )
        world.asides.delete(change.uid)
        yield* readyFor("Converged")
        const reasons = (yield* resources.events(org.id, change.uid, 50)).map(({ reason }) => reason)
        assert.include(reasons, "StandbyDown")
        assert.notInclude(reasons, "DriftFound")
      })
    )
)

it.live("a container goes last, and only when what it holds is seen to be gone", () =>
  withEngine((world) =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const org = yield* makeOrganization()
      const place = yield* makeProject(org.id, "shop")
      const changes = [cacheChange(place, "one", { size: 1 }), cacheChange(place, "two", { size: 2 })]
      yield* resources.write(org.id, changes, actor)
      yield* eventually(
        "made",
        Effect.sync(() => world.things.size),
        (size) => size === 2
      )
      let open = false
      world.behave = (what) =>
        what === "remove" && !open ? Effect.fail(new Retryable({ message: "Not yet" })) : Effect.void
      yield* resources.write(org.id, [{ action: "delete", uid: place.projectId }], actor)
      const waiting = yield* eventually("waiting", record(org.id, place.production), (row) =>
        Boolean(row?.conditions.some((condition) => condition.reason === "WaitingForChildren"))
      )
      assert.strictEqual(waiting?.phase, "deleting")
      open = true
      yield* eventually("gone", resources.all(org.id), (rows) => rows.length === 0)
      assert.strictEqual(world.things.size, 0)
    })
  )
)

it.live("stopping gives leases back, so that the next process goes on at once", () =>
  Effect.gen(function* () {
    const org = yield* makeOrganization()
    const resources = yield* Resources
    const change = cacheChange(yield* makeProject(org.id, "shop"), "one", { size: 3 })
    const stuck = makeWorld()
    stuck.behave = () => Effect.never
    yield* Effect.scoped(
      Effect.gen(function* () {
        yield* Layer.build(EngineLive(stuck, { ...fast, drainMs: 50 }))
        yield* resources.write(org.id, [change], actor)
        yield* eventually(
          "started",
          Effect.sync(() => stuck.log.length),
          (n) => n > 0
        )
      })
    )
    const world = makeWorld()
    yield* Effect.gen(function* () {
      yield* eventually("taken over", record(org.id, change.uid), (row) => row?.phase === "ready")
    }).pipe(Effect.provide(EngineLive(world)))
  }).pipe(Effect.provide(Store))
)

it.live("what somebody asked for starts although routine looks fill the room of its kind", () =>
  Effect.gen(function* () {
    const org = yield* makeOrganization()
    const place = yield* makeProject(org.id, "shop")
    const resources = yield* Resources
    const { engine: sql } = yield* Db
    const world = makeWorld()
    const options = { ...fast, drainMs: 50, orgShare: 1 }
    yield* Effect.gen(function* () {
      const routine = Array.from({ length: 4 }, (_, i) => cacheChange(place, `old-${i}`, { size: 1 }))
      yield* resources.write(org.id, routine, actor)
      for (const { uid } of routine)
        yield* eventually("ready", record(org.id, uid), (row) => row?.phase === "ready")
      world.behave = (_, { uid }) => (routine.some((one) => one.uid === uid) ? Effect.never : Effect.void)
      world.log.length = 0
      yield* sql`update work set due_at = now(), rank = now() + interval '60 seconds' where org_id = ${org.id}::uuid and kind = 'Cache'`
      yield* eventually(
        "the room is full",
        Effect.sync(() => world.log.length),
        (n) => n === 4
      )
      const asked = cacheChange(place, "new", { size: 2 })
      yield* resources.write(org.id, [asked], actor)
      yield* eventually("started", record(org.id, asked.uid), (row) => row?.phase === "ready")
    }).pipe(Effect.provide(EngineLive(world, options, 4)))
  }).pipe(Effect.provide(Store))
)

it.live("changes and the results of reconciles never wait for each other in a circle", () =>
  withEngine(() =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const { engine: sql } = yield* Db
      const org = yield* makeOrganization()
      const place = yield* makeProject(org.id, "shop")
      const made = Array.from({ length: 4 }, (_, i) => cacheChange(place, `c-${i}`, { size: 1 }))
      yield* resources.write(org.id, made, actor)
      // Each change meets the result of the one before.
      yield* Effect.forEach(
        made,
        ({ uid }) =>
          Effect.forEach(
            Array.from({ length: 60 }, (_, i) => i + 2),
            (size) => resources.write(org.id, [{ action: "update", uid, spec: { size } }], actor),
            { discard: true }
          ),
        { concurrency: "unbounded", discard: true }
      )
      for (const { uid } of made) {
        yield* eventually("settled", record(org.id, uid), (row) => row?.observedGeneration === 61)
      }
      const told = sql<{ readonly deadlocks: string }>`
        select deadlocks::text from pg_stat_database where datname = current_database()`
      // The server counts a moment later.
      yield* Effect.sleep("1500 millis")
      assert.deepStrictEqual(yield* told, [{ deadlocks: "0" }])
    })
  )
)
