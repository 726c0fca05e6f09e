/** What a resource is known to be for good, whatever the last look found. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { defineKind } from "#schemas/kind.ts"
import {
  absent,
  type Observation,
  Registry,
  type Resource,
  Retryable,
  register
} from "#src/engine/Reconciler.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { memoryEngine } from "#test/setup/memory-engine.ts"
import { Toy, type ToyStatus } from "#test/setup/toy-kind.ts"

const ToyFacts = Schema.Struct({
  made: Schema.optionalKey(Schema.Boolean),
  label: Schema.optionalKey(Schema.String)
})
const Known = defineKind({ ...Toy, facts: ToyFacts })
type KnownResource = Resource<{ readonly size: number }, { readonly size: number }, typeof ToyFacts.Type>
type Seen = Observation<typeof ToyStatus.Type, typeof ToyFacts.Type>

const present = (size: number, more: Partial<Extract<Seen, { readonly _tag: "Present" }>> = {}): Seen => ({
  _tag: "Present",
  status: { size },
  ready: true,
  differences: [],
  ...more
})

/** Each test says what is seen and what a step does; both may change as it goes on. */
const setting = (outside: {
  look: (resource: KnownResource) => Seen
  step?: (resource: KnownResource) => Effect.Effect<void, Retryable>
  remove?: () => void
}) =>
  Effect.gen(function* () {
    const handed: Array<KnownResource> = []
    const layer = register(
      Known,
      { driftInterval: "1 hour", concurrency: 1 },
      Effect.succeed({
        observe: (resource: KnownResource) => Effect.sync(() => outside.look(resource)),
        converge: (resource: KnownResource) =>
          Effect.suspend(() => {
            handed.push(resource)
            return outside.step?.(resource) ?? Effect.void
          }),
        remove: () => Effect.sync(() => outside.remove?.())
      })
    ).pipe(Layer.provideMerge(Registry.layer))
    const engine = yield* memoryEngine({
      orgId: uuid(),
      uid: uuid(),
      kind: Known.name,
      projectId: null,
      environment: null,
      name: "one",
      parentUid: null,
      spec: { size: 1 },
      generation: 1,
      status: null,
      facts: {},
      deleting: false,
      fence: 0n
    }).pipe(Effect.provide(layer))
    return { ...engine, handed }
  })

it.live("what is away while it is paused keeps its last status and its facts", () =>
  Effect.gen(function* () {
    const outside = { look: (): Seen => present(1, { facts: { made: true } }) }
    const { ready, pause, resume, run, row, handed } = yield* setting(outside)
    yield* ready
    yield* pause
    outside.look = () => absent
    yield* run
    assert.deepStrictEqual([row().status, row().facts], [{ size: 1 }, { made: true }])
    assert.lengthOf(handed, 0)
    yield* resume
    yield* run
    assert.deepStrictEqual(handed.at(-1)?.status, { size: 1 })
    assert.deepStrictEqual(handed.at(-1)?.facts, { made: true })
  })
)

it.live(
  "a new fact is stored before the step that follows it, and is not lost by a failure of that step",
  () =>
    Effect.gen(function* () {
      const differences = [{ field: "/size", message: "is 2 and should be 1" }]
      const { run, row, work, handed } = yield* setting({
        look: () => present(2, { ready: false, facts: { made: true }, differences }),
        step: () => Effect.fail(new Retryable({ message: "It burns" }))
      })
      const first = yield* run
      assert.lengthOf(handed, 0)
      assert.deepStrictEqual(row().facts, { made: true })
      assert.deepStrictEqual(
        [first.dueIn, work()?.attempt],
        [0, 0],
        "it goes on at once, and was no try in vain"
      )
      yield* run
      assert.deepStrictEqual(
        handed.map(({ facts }) => facts),
        [{ made: true }]
      )
      assert.strictEqual(work()?.lastError, "It burns")
      assert.deepStrictEqual(row().facts, { made: true })
    })
)

it.live("later facts replace single keys, and a look that tells none takes none away", () =>
  Effect.gen(function* () {
    let facts: typeof ToyFacts.Type = { made: true, label: "a" }
    const { run, row, resume } = yield* setting({ look: () => present(1, { facts }) })
    yield* run
    facts = { label: "b" }
    yield* run
    assert.deepStrictEqual(row().facts, { made: true, label: "b" })
    facts = {}
    yield* resume
    yield* run
    assert.deepStrictEqual(row().facts, { made: true, label: "b" })
  })
)

it.live(
  "a settled resource is recorded again when a look finds a new fact, and not when it finds the same",
  () =>
    Effect.gen(function* () {
      let facts: typeof ToyFacts.Type = { label: "a" }
      const { ready, run, row } = yield* setting({ look: () => present(1, { facts }) })
      yield* ready
      assert.isUndefined((yield* run).change)
      facts = { label: "b" }
      assert.deepStrictEqual((yield* run).change?.facts, { label: "b" })
      assert.deepStrictEqual(row().facts, { label: "b" })
      assert.isUndefined((yield* run).change)
    })
)

it.live("facts that cannot be read stop every step and say so; removal goes on", () =>
  Effect.gen(function* () {
    let there = true
    const {
      run,
      row,
      condition,
      handed,
      delete: deleteIt,
      store
    } = yield* setting({
      look: () => (there ? present(1) : absent),
      remove: () => {
        there = false
      }
    })
    row().facts = { made: "perhaps" }
    yield* run
    const ready = condition("Ready")
    assert.deepStrictEqual([ready?.status, ready?.reason], ["false", "FactsUnreadable"])
    assert.lengthOf(handed, 0)
    assert.deepStrictEqual(row().facts, { made: "perhaps" })
    yield* deleteIt
    yield* run
    assert.strictEqual(store.resources.size, 0)
  })
)

it.live("a status that cannot be read takes no fact away", () =>
  Effect.gen(function* () {
    const outside = { look: (): Seen => present(1, { facts: { made: true } }) }
    const { ready, run, row, handed } = yield* setting(outside)
    yield* ready
    row().status = { size: "of another release" }
    outside.look = () => absent
    yield* run
    assert.isNull(handed.at(-1)?.status)
    assert.deepStrictEqual(handed.at(-1)?.facts, { made: true })
  })
)

it.live("what new facts say has happened is told once, as a warning that is recorded with them", () =>
  Effect.gen(function* () {
    const happened = { reason: "StartedEmpty", message: "It lost what it held" }
    const outside = { look: (): Seen => present(1, { facts: { label: "first" } }) }
    const { ready, run } = yield* setting(outside)
    yield* ready
    outside.look = () => present(1, { facts: { label: "second" }, happened })
    const told = yield* run
    assert.deepInclude(told.change?.events ?? [], { type: "Warning", ...happened })
    assert.isUndefined((yield* run).change)
  })
)

it.live("what is paused is called ready exactly as long as it can be relied on", () =>
  Effect.gen(function* () {
    let seen: Seen | Error = present(1)
    const { ready, pause, resume, run, row, condition } = yield* setting({
      look: () => {
        if (seen instanceof Error) throw seen
        return seen
      }
    })
    const told = () => [row().phase, condition("Ready")?.status]
    yield* ready
    yield* pause
    yield* run
    assert.deepStrictEqual(told(), ["ready", "true"])
    seen = absent
    yield* run
    assert.deepStrictEqual(told(), ["waiting", "false"])
    seen = present(1)
    yield* run
    assert.deepStrictEqual(told(), ["ready", "true"])
    seen = new Error("nobody can tell")
    yield* run
    assert.deepStrictEqual(told(), ["waiting", "unknown"])
    seen = present(1)
    yield* resume
    yield* run
    assert.deepStrictEqual(told(), ["ready", "true"])
  })
)

it.live("a step of maintenance that fails is told with its cause, and leaves the resource ready", () =>
  Effect.gen(function* () {
    const outside: Parameters<typeof setting>[0] = {
      look: () => present(1, { maintenance: [{ field: "/copy", message: "there is none" }] }),
      step: () =>
        Effect.fail(new Retryable({ reason: "CopyFailing", message: "No copy can be made: no room" }))
    }
    const { run, row, condition, work, events } = yield* setting(outside)
    for (let tries = 1; tries <= 8; tries++) {
      yield* run
      assert.deepStrictEqual([row().phase, condition("Ready")?.status], ["ready", "true"])
      assert.strictEqual(work()?.lastError, "No copy can be made: no room")
      assert.strictEqual(work()?.attempt, tries)
    }
    assert.include(condition("Ready")?.message, "No copy can be made: no room")
    assert.isNotEmpty(events("CopyFailing"))
    assert.deepInclude(condition("Stalled"), { status: "true", reason: "NoProgress" })
    assert.include(condition("Stalled")?.message, "No copy can be made: no room")
    outside.look = () => present(1)
    yield* run
    assert.isNull(work()?.lastError)
    assert.deepInclude(condition("Ready"), { status: "true", reason: "Converged" })
  })
)
