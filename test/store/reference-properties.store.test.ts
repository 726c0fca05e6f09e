/** Random resources that refer to each other: what a model says of their references, plans and the store say as well. */
import { assert, describe, it, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Result from "effect/Result"
import * as cronReconciler from "#reconcilers/cron.ts"
import * as queueReconciler from "#reconcilers/queue.ts"
import type { Manifest } from "#schemas/manifest.ts"
import { anyPool } from "#schemas/placement.ts"
import { Crons } from "#src/crons/Crons.ts"
import { defaults } from "#src/engine/options.ts"
import { Registry } from "#src/engine/Reconciler.ts"
import { reconcile } from "#src/engine/reconcile.ts"
import { WorkStore } from "#src/engine/WorkStore.ts"
import { checkManifest } from "#src/manifest/parse.ts"
import { type Current, makePlan } from "#src/manifest/plan.ts"
import { toChanges } from "#src/manifest/to-changes.ts"
import { QueueTables } from "#src/queues/QueueTables.ts"
import { Interventions } from "#src/store/Interventions.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import * as Work from "#src/store/Work.ts"
import { applySteps, randomFrom } from "#test/manifest/state.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"

type Random = ReturnType<typeof randomFrom>
/** The queues by name with where each sends what it gives up, and the queues of the cron jobs. */
interface Model {
  readonly queues: ReadonlyMap<string, string | null>
  readonly crons: ReadonlyMap<string, string>
}

const names = ["aa", "bb", "cc", "dd", "ee"]
const randomModel = (random: Random): Model => {
  const some = random.some(names, 0.7)
  const pick = () => (random.chance(0.9) && some.length > 0 ? random.pick(some) : random.pick(names))
  return {
    queues: new Map(some.map((name) => [name, random.chance(0.5) ? pick() : null])),
    crons: new Map(random.some(["xx", "yy"], 0.6).map((name) => [name, pick()]))
  }
}
const isCircular = ({ queues }: Model, start: string): boolean => {
  let at = queues.get(start)
  for (let steps = 0; typeof at === "string" && steps < names.length; steps++) {
    if (at === start) return true
    at = queues.get(at)
  }
  return false
}
const isSound = (model: Model): boolean =>
  [...model.queues].every(
    ([name, next]) => (next === null || model.queues.has(next)) && !isCircular(model, name)
  )

const manifestOf = ({ queues, crons }: Model): Manifest => ({
  version: 1,
  organization: "main",
  projects: [
    {
      name: "Shop",
      slug: "shop",
      runtimeClass: "scale-to-zero",
      queues: [...queues].map(([name, deadLetterQueue]) => ({ name, deadLetterQueue })),
      crons: [...crons].map(([name, queue]) => ({
        name,
        environment: "production",
        schedule: "0 0 1 1 *",
        target: { kind: "queue" as const, queue }
      }))
    }
  ]
})
const plan = (manifest: Manifest, current: ReadonlyArray<Current>) =>
  makePlan(manifest, current, {
    prune: true,
    confirm: ["shop"],
    fingerprint: (text) => text,
    regions: ["local"]
  })
const address = (kind: string, name: string) => `shop/production/${kind}/${name}`
/** What names what, by address. */
const edges = ({ queues, crons }: Model) => [
  ...[...queues].flatMap(([name, next]) =>
    next === null ? [] : [[address("Queue", name), address("Queue", next)] as const]
  ),
  ...[...crons].map(([name, queue]) => [address("Cron", name), address("Queue", queue)] as const)
]

describe("plans over random references", () => {
  it("refuse circles and what is missing, create what is named first and delete it last", () => {
    const seen = { faulty: 0, blocked: 0, applied: 0, deleted: 0 }
    for (let seed = 1; seed <= 400; seed++) {
      const random = randomFrom(seed)
      let state: ReadonlyArray<Current> = []
      let before: Model = { queues: new Map(), crons: new Map() }
      for (let step = 0; step < 3; step++) {
        const model = randomModel(random)
        const manifest = manifestOf(model)
        const checked = checkManifest(manifest, () => ({}))
        assert.strictEqual(Result.isSuccess(checked), isSound(model), `seed ${seed}`)
        if (!isSound(model)) {
          seen.faulty++
          continue
        }
        const made = plan(manifest, state)
        const missing = [...model.crons.values()].filter((queue) => !model.queues.has(queue))
        assert.deepStrictEqual(
          made.blockers.map(({ code }) => code),
          missing.map(() => "unknown_queue"),
          `seed ${seed}`
        )
        if (missing.length > 0) {
          seen.blocked++
          continue
        }
        const at = (action: string, one: string) =>
          made.steps.findIndex((step) => step.action === action && step.address === one)
        for (const [user, used] of edges(model))
          if (at("create", user) >= 0) assert.isBelow(at("create", used), at("create", user), `seed ${seed}`)
        for (const [user, used] of edges(before)) {
          if (at("delete", used) < 0) continue
          seen.deleted++
          assert.isBelow(at("delete", user), at("delete", used), `seed ${seed}`)
        }
        state = applySteps(state, made.steps)
        before = model
        seen.applied++
      }
    }
    for (const [what, count] of Object.entries(seen)) assert.isAbove(count, 20, what)
  })
})

const Store = Resources.layer.pipe(Layer.provideMerge(KeyRing.layerEphemeral), Layer.provideMerge(testDb()))

layer(Store, { excludeTestServices: true })("the store over random references", (it) => {
  it.effect("refuses what the model refuses, and lets go of everything at once", () =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const seen = new Set<string>()
      for (let seed = 1; seed <= 12; seed++) {
        const random = randomFrom(seed)
        const org = yield* makeOrganization()
        const write = (changes: Parameters<typeof resources.write>[1]) =>
          Effect.map(Effect.result(resources.write(org.id, changes, actor)), (result) => {
            const outcome = Result.isSuccess(result)
              ? "done"
              : result.failure._tag === "Refused"
                ? result.failure.code
                : result.failure._tag
            seen.add(outcome)
            return outcome
          })
        const current = Effect.map(resources.all(org.id), (records) =>
          records.map((record): Current => ({ ...record, deleting: record.deletionRequestedAt !== null }))
        )
        let model = randomModel(random)
        while (!isSound(model) || [...model.crons.values()].some((queue) => !model.queues.has(queue)))
          model = randomModel(random)
        const made = plan(manifestOf(model), yield* current)
        assert.strictEqual(yield* write(toChanges(made.steps)), "done")
        const again = plan(manifestOf(model), yield* current)
        assert.isEmpty(again.steps, `seed ${seed}`)

        const queues = new Map(model.queues)
        const uidOf = new Map(made.steps.map((step) => [step.address, step.uid]))
        for (let step = 0; step < 12; step++) {
          const name = random.pick([...names])
          const uid = uidOf.get(address("Queue", name))
          if (uid === undefined || !queues.has(name)) continue
          const next = { ...model, queues }
          if (random.chance(0.4)) {
            const used = edges(next).some(([, target]) => target === address("Queue", name))
            const outcome = yield* write([{ action: "delete", uid }])
            assert.strictEqual(outcome, used ? "in_use" : "done", `seed ${seed}`)
            if (!used) queues.delete(name)
          } else {
            const target = random.pick(names)
            const changed = new Map(queues).set(name, target)
            const outcome = yield* write([{ action: "update", uid, spec: { deadLetterQueue: target } }])
            const expected = !queues.has(target)
              ? "unknown_queue"
              : isCircular({ ...model, queues: changed }, name)
                ? "reference_circle"
                : "done"
            assert.strictEqual(outcome, queues.get(name) === target ? "done" : expected, `seed ${seed}`)
            if (outcome === "done") queues.set(name, target)
          }
        }
        const emptied = plan({ version: 1, organization: "main", projects: [] }, yield* current)
        assert.deepStrictEqual([emptied.blockers, yield* write(toChanges(emptied.steps))], [[], "done"])
        assert.isTrue((yield* current).every(({ deleting }) => deleting))
      }
      assert.sameMembers([...seen], ["done", "in_use", "unknown_queue", "reference_circle"])
    })
  )
})

const Engine = Layer.mergeAll(cronReconciler.layer, queueReconciler.layer).pipe(
  Layer.provideMerge(Layer.mergeAll(Registry.layer, Work.layer, Interventions.layer)),
  Layer.provide(Layer.mergeAll(QueueTables.layer, Crons.layer)),
  Layer.provideMerge(Store)
)

layer(Engine, { excludeTestServices: true })("what waits for what it names", (it) => {
  it.effect("rests until that comes, and is ready without another look of its own accord", () =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const work = yield* WorkStore
      const interventions = yield* Interventions
      const { registrations } = yield* Registry
      const org = yield* makeOrganization()
      const { projectId, production } = yield* makeProject(org.id, "shop")
      const base = { action: "create", projectId, environment: "production", managedBy: "api" } as const
      const write = (kind: string, name: string, spec: object) => {
        const uid = uuid()
        const change = {
          ...base,
          uid,
          kind,
          name,
          parentUid: production,
          spec: JSON.parse(JSON.stringify(spec))
        }
        return Effect.as(resources.write(org.id, [change], actor), uid)
      }
      /** Runs whatever is due now, until nothing is. */
      const quiet = Effect.gen(function* () {
        for (let runs = 0; ; runs++) {
          const rooms = ["Queue", "Cron"].map((kind) => ({
            kind,
            pool: anyPool,
            room: 10,
            fullOrgs: []
          }))
          const claimed = yield* work.claim(rooms, 600_000)
          if (claimed.length === 0) return
          assert.isBelow(runs, 50)
          for (const one of claimed) {
            const registration = registrations.get(one.kind)
            if (registration === undefined) continue
            yield* work.record([(yield* reconcile(registration, one, defaults)).recorded])
          }
        }
      })
      const phaseOf = (uid: string) =>
        Effect.map(resources.get(org.id, uid), (found) =>
          found._tag === "Some" ? found.value.phase : "gone"
        )
      const letters = yield* write("Queue", "letters", {})
      const cron = yield* write("Cron", "posting", {
        schedule: "0 0 1 1 *",
        target: { kind: "queue", queue: "letters" }
      })
      const dead = yield* write("Queue", "dead", {})
      const jobs = yield* write("Queue", "jobs", { deadLetterQueue: "dead" })
      // Gone without anybody being asked, as an older release would let them go, or an operator.
      for (const uid of [letters, dead]) yield* interventions.abandon(org.id, uid, "a test", actor)
      yield* quiet
      assert.deepStrictEqual([yield* phaseOf(cron), yield* phaseOf(jobs)], ["waiting", "waiting"])
      yield* write("Queue", "other", {})
      yield* quiet
      assert.deepStrictEqual([yield* phaseOf(cron), yield* phaseOf(jobs)], ["waiting", "waiting"])
      yield* write("Queue", "letters", {})
      yield* quiet
      assert.deepStrictEqual([yield* phaseOf(cron), yield* phaseOf(jobs)], ["ready", "waiting"])
      yield* write("Queue", "dead", {})
      yield* quiet
      assert.deepStrictEqual([yield* phaseOf(cron), yield* phaseOf(jobs)], ["ready", "ready"])
    })
  )
})
