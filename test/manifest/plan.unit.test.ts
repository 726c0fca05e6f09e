import { isDeepStrictEqual } from "node:util"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import jsonPatch, { type Operation } from "fast-json-patch"
import { completeSpec } from "#schemas/complete-spec.ts"
import { findKind } from "#schemas/index.ts"
import type { Manifest } from "#schemas/manifest.ts"
import { exportManifest, toYaml } from "#src/manifest/export.ts"
import { checkManifest, parseManifest } from "#src/manifest/parse.ts"
import { type Current, makePlan, movedSince, type PlanOptions, planInSteps } from "#src/manifest/plan.ts"
import { addressOf } from "#src/store/records.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { applySteps, type Randomness, randomFrom, randomManifest } from "./state.ts"

const fingerprint = (value: string) => `fp(${value})`
const everywhere = ["alpha", "beta", "gamma"]
const plan = (manifest: Manifest, current: ReadonlyArray<Current>, options: Partial<PlanOptions> = {}) =>
  makePlan(manifest, current, {
    prune: true,
    confirm: everywhere,
    fingerprint,
    regions: ["local"],
    ...options
  })
const properties: Array<(random: Randomness) => void> = []
const seeds = Array.from({ length: 40 }, (_, i) => i + 1)
/** Registers a test of something that holds for any states and manifests. */
const property = (statement: string, holds: (random: Randomness) => void, after = () => {}) => {
  properties.push(holds)
  it(statement, () => {
    for (const seed of seeds) {
      try {
        holds(randomFrom(seed))
      } catch (error) {
        throw new Error(`seed ${seed}: ${error instanceof Error ? error.message : String(error)}`, {
          cause: error
        })
      }
    }
    after()
  })
}
/** A state that came about by applying a manifest to another one. */
const randomState = (random: Randomness) => {
  const first = plan(randomManifest(random), [])
  const before = applySteps([], first.steps)
  return applySteps(before, plan(randomManifest(random), before).steps)
}
const publicSpec = (one: Current | undefined, kind: string) => {
  const internal = findKind(kind)?.internal ?? []
  return Object.fromEntries(Object.entries(one?.spec ?? {}).filter(([field]) => !internal.includes(field)))
}
/** As a release stored it in which no field had come yet that has a default now. */
const withoutDefaults = (one: Current): Record<string, unknown> => {
  const kind = findKind(one.kind) ?? assert.fail(one.kind)
  const complete = Result.getOrThrow(completeSpec(kind, one.spec))
  return Object.fromEntries(
    Object.entries(Object(one.spec)).filter(([field]) => {
      const { [field]: _, ...rest } = Object(one.spec)
      const without = completeSpec(kind, rest)
      return Result.isFailure(without) || !isDeepStrictEqual(without.success, complete)
    })
  )
}
const changesOf = (made: ReturnType<typeof plan>) => made.changes.filter(({ action }) => action !== "noop")

describe("plans", () => {
  property("an export, planned against the state it came from, changes nothing", (random) => {
    const state = randomState(random)
    const exported = exportManifest("main", state)
    const parsed = parseManifest(toYaml(exported))
    if (Result.isFailure(parsed)) throw new Error(JSON.stringify(parsed.failure))
    const made = plan(parsed.success.manifest, state)
    assert.deepStrictEqual([changesOf(made), made.blockers, made.steps], [[], [], []])
  })

  let dropped = 0
  property(
    "specifications that were stored before a field with a default came plan to nothing",
    (random) => {
      const state = randomState(random)
      const older = state.map((one) => ({ ...one, spec: withoutDefaults(one) }))
      for (const [index, one] of older.entries())
        dropped += Object.keys(state[index]?.spec ?? {}).length - Object.keys(one.spec).length
      // As text: a manifest that names every value, and one that leaves the defaults out.
      for (const manifest of [exportManifest("main", state), exportManifest("main", older)]) {
        assert.deepStrictEqual(manifest, exportManifest("main", state))
        const made = plan(manifest, older)
        assert.deepStrictEqual([changesOf(made), made.blockers, made.warnings, made.steps], [[], [], [], []])
      }
      // What really changes is written in full, and shown without the fields that only came.
      const wanted = randomManifest(random)
      const [now, before] = [plan(wanted, state), plan(wanted, older)]
      const essence = ({ changes }: typeof now) =>
        changes.map(({ address, action, patch }) => ({ address, action, patch }))
      assert.deepStrictEqual(essence(before), essence(now))
      const specs = ({ steps }: typeof now) =>
        steps.map(({ address, action, spec }) => ({ address, action, spec }))
      assert.deepStrictEqual(specs(before), specs(now))
    },
    () => {
      assert.isAbove(dropped, 3 * seeds.length)
    }
  )

  it("what is stored and not valid in this release is compared as it is, with a warning, and not exported", () => {
    const project = {
      name: "A",
      slug: "alpha",
      runtimeClass: "always-on" as const,
      caches: [{ name: "one", region: "local" }]
    }
    const manifest: Manifest = { version: 1, organization: "main", projects: [project] }
    const state = applySteps([], plan(manifest, []).steps).map((one) =>
      one.kind === "Cache" ? { ...one, spec: { ...Object(one.spec), persistence: "someday" } } : one
    )
    const made = plan(manifest, state)
    assert.deepStrictEqual(
      changesOf(made).map(({ address, action }) => `${action} ${address}`),
      ["update alpha/production/Cache/one"]
    )
    assert.deepStrictEqual(made.warnings, [
      {
        pointer: "/projects/0/caches/0",
        message: 'What is stored of Cache "one" is not valid in this release, and is compared as it is'
      }
    ])
    // A manifest with it would be refused: it is not exported, and what is not exported is not deleted for that.
    const exported = exportManifest("main", state)
    assert.notInclude(JSON.stringify(exported), "someday")
    assert.deepStrictEqual(plan(exported, state).blockers, [])
    const pruning = { ...exported, projects: [{ ...project, caches: [] }] }
    const codes = plan(pruning, state).blockers.map(({ code }) => code)
    assert.deepStrictEqual(codes, ["unreadable_specification"])
  })

  property("what an export says after applying a manifest is that manifest", (random) => {
    const state = randomState(random)
    const manifest = randomManifest(random)
    const made = plan(manifest, state)
    assert.deepStrictEqual(made.blockers, [])
    const after = applySteps(state, made.steps)
    assert.deepStrictEqual(changesOf(plan(manifest, after)), [])
    // Nothing but what it names is left, and the environments that every project has.
    const wanted = new Set((manifest.projects ?? []).map(({ slug }) => slug))
    for (const one of after) assert.isTrue(wanted.has(one.project ?? ""), addressOf(one))
    const again = exportManifest("main", after)
    assert.deepStrictEqual(exportManifest("main", applySteps(after, plan(again, after).steps)), again)
  })

  property("the patches of a plan, applied to the old specifications, give the new ones", (random) => {
    const state = randomState(random)
    const made = plan(randomManifest(random), state)
    const after = new Map(applySteps(state, made.steps).map((one) => [addressOf(one), one]))
    const before = new Map(state.map((one) => [addressOf(one), one]))
    for (const change of changesOf(made)) {
      // Values of variables are masked in patches, so those cannot be replayed.
      if (change.action === "delete" || change.kind === "EnvVariables") continue
      const old = structuredClone(publicSpec(before.get(change.address), change.kind))
      const patched = jsonPatch.applyPatch(
        change.action === "create" ? {} : old,
        structuredClone(change.patch) as Array<Operation>
      ).newDocument
      assert.deepStrictEqual(patched, publicSpec(after.get(change.address), change.kind))
      assert.isNotEmpty(change.action === "create" && change.kind === "Environment" ? [1] : change.patch)
    }
  })

  property("without prune nothing is deleted, inside of a resource neither", (random) => {
    const state = randomState(random)
    const wanted = randomManifest(random)
    const made = plan(wanted, state, { prune: false, confirm: [] })
    const gone = new Set(
      changesOf(made).flatMap(({ action, address }) => (action === "delete" ? [address] : []))
    )
    // What is kept is named with its reason, and asks for nothing.
    const kept = (some: typeof made) =>
      some.changes.filter(({ reasons }) => reasons.some(({ code }) => code === "needs_prune"))
    for (const { action, risk, patch, requires } of kept(made))
      assert.deepStrictEqual(
        [action, risk, patch, requires],
        ["noop", "read", [], { role: "member", billing: false }]
      )
    const pruned = plan(wanted, state)
    assert.deepStrictEqual(
      kept(made)
        .map(({ address }) => address)
        .sort(),
      pruned.changes.flatMap(({ action, address }) => (action === "delete" ? [address] : [])).sort()
    )
    assert.deepStrictEqual(kept(pruned), [])
    const after = new Map(applySteps(state, made.steps).map((one) => [addressOf(one), one]))
    for (const one of state) {
      const kept = after.get(addressOf(one))
      assert.isDefined(kept)
      assert.isFalse(gone.has(addressOf(one)))
      if (one.kind !== "EnvVariables") continue
      const keys = (it: unknown) => Object.keys((it as { variables: object }).variables)
      assert.includeMembers(keys(kept?.spec), keys(one.spec))
    }
  })

  property("things are created before what lives in them, and deleted after it", (random) => {
    const state = randomState(random)
    const { changes } = plan(randomManifest(random), state)
    const order = ["Project", "Environment", "EnvVariables", "Database", "Cache"]
    const rank = (kind: string) => order.indexOf(kind)
    const deletions = changes.filter(({ action }) => action === "delete").map(({ kind }) => rank(kind))
    const others = changes.filter(({ action }) => action !== "delete").map(({ kind }) => rank(kind))
    assert.deepStrictEqual(
      others,
      [...others].sort((a, b) => a - b)
    )
    assert.deepStrictEqual(
      deletions,
      [...deletions].sort((a, b) => b - a)
    )
    const firstDeletion = changes.findIndex(({ action }) => action === "delete")
    if (firstDeletion !== -1)
      assert.isTrue(changes.slice(firstDeletion).every(({ action }) => action === "delete"))
  })

  campaign(
    it.live,
    "plans",
    "whatever is stored and whatever is asked for, every property of plans holds",
    {},
    ({ seed }) =>
      Effect.sync(() => {
        for (const holds of properties) holds(randomFrom(seed))
      })
  )

  it("a key that is left out is unmanaged", () => {
    const state = randomState(randomFrom(7))
    const project = { name: "Alpha", slug: "alpha", runtimeClass: "always-on" as const }
    const made = plan({ version: 1, organization: "main", projects: [project] }, state, { prune: true })
    const inside = changesOf(made).filter(({ project, kind }) => project === "alpha" && kind !== "Project")
    assert.deepStrictEqual(inside, [])
    assert.deepStrictEqual(changesOf(plan({ version: 1, organization: "main" }, state)), [])
  })

  it("a masked value leaves what is there, and is refused where nothing is", () => {
    const project = { name: "A", slug: "alpha", runtimeClass: "always-on" as const, env: { KEY: "secret" } }
    const manifest = { version: 1, organization: "main", projects: [project] } as const
    const state = applySteps([], plan(manifest, []).steps)
    const masked = { ...manifest, projects: [{ ...project, env: { KEY: "****" } }] }
    assert.deepStrictEqual(changesOf(plan(masked, state)), [])
    assert.deepStrictEqual(
      plan(masked, []).blockers.map(({ code }) => code),
      ["masked_value_without_current"]
    )
    const changed = plan({ ...manifest, projects: [{ ...project, env: { KEY: "other" } }] }, state)
    assert.notInclude(JSON.stringify(changed.changes), "other")
    assert.notInclude(JSON.stringify(changed.changes), "fp(")
  })

  it("marks for builds that are left out stay as they are, without those of variables that go", () => {
    const project = { name: "A", slug: "alpha", runtimeClass: "always-on" as const }
    const env = { ONE: "1", TWO: "2", THREE: "3" }
    const of = (more: object) =>
      ({ version: 1, organization: "main", projects: [{ ...project, ...more }] }) as const
    const marksOf = (state: ReadonlyArray<Current>) =>
      state.flatMap(({ kind, spec }) => (kind === "EnvVariables" ? [Object(spec).forBuilds] : []))
    const state = applySteps([], plan(of({ env, envForBuilds: ["TWO", "ONE"] }), []).steps)
    assert.deepStrictEqual(marksOf(state), [["ONE", "TWO"]])
    assert.deepStrictEqual(changesOf(plan(of({ env }), state, { prune: true })), [])
    const fewer = plan(of({ env: { TWO: "2", THREE: "4" } }), state, { prune: true })
    assert.deepStrictEqual(marksOf(applySteps(state, fewer.steps)), [["TWO"]])
    const none = plan(of({ env, envForBuilds: [] }), state)
    assert.deepStrictEqual(marksOf(applySteps(state, none.steps)), [[]])
  })

  it("what protects against deletion blocks it, and so does deleting everything without a name", () => {
    const state = randomState(randomFrom(11)).map((one) =>
      one.kind === "Project" ? { ...one, protected: true } : one
    )
    const empty = { version: 1, organization: "main", projects: [] } as const
    assert.include(
      plan(empty, state).blockers.map(({ code }) => code),
      "protected"
    )
    const open = state.map((one) => ({ ...one, protected: false }))
    assert.include(
      plan(empty, open, { confirm: [] }).blockers.map(({ code }) => code),
      "confirm_deletion"
    )
    assert.deepStrictEqual(plan(empty, open).blockers, [])
  })

  it("sections that are not available yet block the plan and name the place", () => {
    const project = {
      name: "A",
      slug: "alpha",
      runtimeClass: "always-on",
      realtime: [{ name: "jobs" }],
      databases: [{ name: "main", sku: "db-n1", region: "local", replicas: 2, backup: { pitrDays: 7 } }]
    }
    const parsed = checkManifest({ version: 1, organization: "main", projects: [project] }, () => ({}))
    if (Result.isFailure(parsed)) throw new Error(JSON.stringify(parsed.failure))
    const { blockers } = plan(parsed.success.manifest, [])
    assert.sameMembers(
      blockers.map(({ pointer }) => pointer),
      ["/projects/0/realtime"]
    )
    assert.isTrue(blockers.every(({ code }) => code === "not_available"))
  })

  it("a plan notices what moved since it was made", () => {
    assert.deepStrictEqual(movedSince({ a: "1", b: "1" }, { a: "1", b: "2", c: "1" }), ["b", "c"])
    assert.deepStrictEqual(movedSince({ a: "1" }, { a: "1" }), [])
  })

  it("an unknown environment, region or size names its place", () => {
    const project = {
      name: "A",
      slug: "alpha",
      runtimeClass: "always-on" as const,
      databases: [{ name: "main", sku: "db-x", region: "moon", environment: "nowhere" }],
      caches: [{ name: "one", region: "moon" }]
    }
    const { blockers } = plan({ version: 1, organization: "main", projects: [project] }, [])
    assert.sameMembers(
      blockers.map(({ pointer, code }) => [pointer, code].join(" ")),
      ["/projects/0/databases/0/environment unknown_environment", "/projects/0/caches/0/region invalid_spec"]
    )
  })

  it("where no region is named, the first one is meant; what is there already stays where it is", () => {
    const branch = { sourceEnvironment: "staging", sourceDatabase: "main" }
    const project = { name: "A", slug: "alpha", runtimeClass: "always-on" as const, databaseBranch: branch }
    const manifest: Manifest = { version: 1, organization: "main", projects: [project] }
    const regions = ["north", "south"] as const
    const made = plan(manifest, [], { regions })
    const specOf = ({ steps }: ReturnType<typeof plan>) =>
      steps.find(({ kind }) => kind === "DatabaseBranch")?.spec
    assert.strictEqual(specOf(made)?.["region"], "north")
    const state = applySteps([], made.steps)
    const changed = { ...project, databaseBranch: { ...branch, expiresInDays: 3 } }
    const later = plan({ ...manifest, projects: [changed] }, state, { regions: ["south", "north"] })
    assert.deepInclude(specOf(later), { region: "north", expiresInDays: 3 })
    // Made again, it would be in a region that there is not any more.
    const again = { ...project, databaseBranch: { ...branch, sourceEnvironment: "production" } }
    const moved = plan({ ...manifest, projects: [{ ...again, previewData: "allowed" }] }, state, {
      regions: ["south"]
    })
    assert.deepStrictEqual(
      moved.blockers.map(({ pointer, message }) => [pointer, message]),
      [
        [
          "/projects/0/databaseBranch",
          'DatabaseBranch "preview" would be made again, and its region must be one of: south'
        ]
      ]
    )
  })

  it("a large one is made in many steps, each of which lets others have their turn", () => {
    const manifest: Manifest = {
      version: 1,
      organization: "main",
      projects: [
        {
          name: "P",
          slug: "large",
          runtimeClass: "always-on",
          caches: Array.from({ length: 5_000 }, (_, i) => ({ name: `cache-${i}`, region: "local" }))
        }
      ]
    }
    const options = { prune: true, confirm: ["large"], fingerprint, regions: ["local"] } as const
    const full = applySteps([], plan(manifest, []).steps)
    const empty: Manifest = {
      ...manifest,
      projects: manifest.projects?.map((one) => ({ ...one, caches: [] })) ?? []
    }
    for (const [wanted, current] of [
      [manifest, []],
      [manifest, full],
      [empty, full]
    ] as const) {
      const steps = planInSteps(wanted, current, options)
      let [count, step] = [1, steps.next()]
      while (step.done !== true) [count, step] = [count + 1, steps.next()]
      assert.isAbove(count, 50)
      assert.isAtLeast(step.value.changes.length, 5_000)
    }
  })
})
