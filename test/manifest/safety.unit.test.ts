import { assert, describe, it } from "@effect/vitest"
import jsonPatch from "fast-json-patch"
import { findKind, kinds } from "#schemas/index.ts"
import type { Manifest, ManifestProject } from "#schemas/manifest.ts"
import { publicSpec } from "#schemas/public-spec.ts"
import { exportManifest } from "#src/manifest/export.ts"
import { creationOrder } from "#src/manifest/order.ts"
import { type Current, makePlan, type PlanOptions } from "#src/manifest/plan.ts"
import { applySteps } from "./state.ts"

const fingerprint = (value: string) => `fp(${value})`
const plan = (manifest: Manifest, current: ReadonlyArray<Current>, options: Partial<PlanOptions> = {}) =>
  makePlan(manifest, current, { prune: true, confirm: [], fingerprint, regions: ["local"], ...options })
const project = (slug: string, more: Partial<ManifestProject> = {}): ManifestProject => ({
  name: "A",
  slug,
  runtimeClass: "always-on",
  ...more
})
const manifest = (...projects: ReadonlyArray<ManifestProject>): Manifest => ({
  version: 1,
  organization: "main",
  projects
})
const stored = (...projects: ReadonlyArray<ManifestProject>) =>
  applySteps([], plan(manifest(...projects), []).steps)
const codes = (made: ReturnType<typeof plan>) =>
  made.blockers.map(({ pointer, code }) => `${pointer} ${code}`)
const actions = (made: ReturnType<typeof plan>) =>
  made.changes.filter(({ action }) => action !== "noop").map(({ action, address }) => `${action} ${address}`)
const database = (name: string, environment = "production") => ({
  name,
  environment,
  sku: "db-n1",
  region: "local"
})
const caches = (count: number, environment = "production") =>
  Array.from({ length: count }, (_, i) => ({ name: `c${i + 10}`, environment, region: "local" }))

describe("what a plan refuses", () => {
  it("a second database beside one that stays is a blocker; with prune it takes its place", () => {
    const state = stored(project("alpha", { databases: [database("main")] }))
    const renamed = manifest(project("alpha", { databases: [database("data")] }))
    assert.deepStrictEqual(codes(plan(renamed, state, { prune: false })), [
      "/projects/0/databases/0 one_per_environment"
    ])
    const pruned = plan(renamed, state)
    assert.deepStrictEqual(codes(pruned), [])
    assert.deepStrictEqual(actions(pruned), [
      "create alpha/production/Database/data",
      "delete alpha/production/Database/main"
    ])
    const two = plan(manifest(project("alpha", { databases: [database("main"), database("data")] })), [])
    assert.deepStrictEqual(codes(two), ["/projects/0/databases/1 one_per_environment"])
  })

  it("a cron job publishes to a queue of its environment that is there once the plan is carried out", () => {
    const posting = (queue: string, environment = "production") => ({
      name: "posting",
      environment,
      schedule: "0 0 1 1 *",
      target: { kind: "queue" as const, queue }
    })
    const unknown = ["/projects/0/crons/0/target/queue unknown_queue"]
    const withQueue = { queues: [{ name: "letters" }] }
    // In the manifest, in the store, in neither, in another environment.
    const both = { ...withQueue, crons: [posting("letters")] }
    assert.deepStrictEqual(codes(plan(manifest(project("alpha", both)), [])), [])
    const state = stored(project("alpha", withQueue))
    assert.deepStrictEqual(
      codes(plan(manifest(project("alpha", { crons: [posting("letters")] })), state)),
      []
    )
    assert.deepStrictEqual(
      codes(plan(manifest(project("alpha", { crons: [posting("other")] })), state)),
      unknown
    )
    const away = { ...withQueue, crons: [posting("letters", "preview")] }
    assert.deepStrictEqual(codes(plan(manifest(project("alpha", away)), state)), unknown)
    // The plan itself would delete it: prune does, and without prune it stays.
    const without = manifest(project("alpha", { queues: [], crons: [posting("letters")] }))
    assert.deepStrictEqual(codes(plan(without, state)), unknown)
    assert.deepStrictEqual(codes(plan(without, state, { prune: false })), [])
  })

  it("a stored cron job whose queue is gone already is warned of, so that an own export can be applied", () => {
    const posting = {
      name: "posting",
      environment: "production",
      schedule: "0 0 1 1 *",
      target: { kind: "queue" as const, queue: "letters" }
    }
    const whole = stored(project("alpha", { queues: [{ name: "letters" }], crons: [posting] }))
    const state = whole.filter(({ kind }) => kind !== "Queue")
    const pointer = "/projects/0/crons/0/target/queue"
    const own = plan(exportManifest("main", state), state)
    assert.deepStrictEqual([codes(own), actions(own)], [[], []])
    assert.deepStrictEqual(own.warnings, [
      { pointer, message: 'names the queue "letters", which "production" does not have' }
    ])
    // A job that is aimed at a queue that is not there is blocked, as is a queue that goes by the plan itself.
    const aimed = { ...posting, target: { kind: "queue" as const, queue: "other" } }
    const blocked = [`${pointer} unknown_queue`]
    assert.deepStrictEqual(codes(plan(manifest(project("alpha", { crons: [aimed] })), state)), blocked)
    const deleting = manifest(project("alpha", { queues: [], crons: [posting] }))
    assert.deepStrictEqual(codes(plan(deleting, whole)), blocked)
  })

  it("a queue that a stored cron job publishes to is not deleted under it", () => {
    const posting = {
      name: "posting",
      environment: "production",
      schedule: "0 0 1 1 *",
      target: { kind: "queue" as const, queue: "letters" }
    }
    const state = stored(
      project("alpha", { queues: [{ name: "letters" }, { name: "spare" }], crons: [posting] })
    )
    const fewer = plan(manifest(project("alpha", { queues: [{ name: "spare" }] })), state)
    assert.deepStrictEqual(codes(fewer), ["/projects/0/queues in_use"])
    assert.include(fewer.blockers[0]?.message, "alpha/production/Cron/posting names it in target.queue")
    const unused = plan(manifest(project("alpha", { queues: [{ name: "letters" }] })), state)
    assert.deepStrictEqual(codes(unused), [])
    const kept = plan(manifest(project("alpha", { queues: [{ name: "spare" }] })), state, { prune: false })
    assert.deepStrictEqual(codes(kept), [])
    // With the job gone or aimed elsewhere by the same plan it may go.
    const gone = project("alpha", { queues: [{ name: "spare" }], crons: [] })
    assert.deepStrictEqual(codes(plan(manifest(gone), state)), [])
    const turned = { ...posting, target: { kind: "queue" as const, queue: "spare" } }
    const aimed = project("alpha", { queues: [{ name: "spare" }], crons: [turned] })
    assert.deepStrictEqual(codes(plan(manifest(aimed), state)), [])
  })

  it("an entry stands in an environment that the manifest lists, or that exists where it lists none", () => {
    const state = stored(project("alpha", { environments: { staging: {} } }))
    const inStaging = { caches: caches(1, "staging") }
    const there = plan(manifest(project("alpha", inStaging)), state)
    assert.deepStrictEqual([codes(there), actions(there)], [[], ["create alpha/staging/Cache/c10"]])
    for (const prune of [true, false]) {
      const gone = plan(manifest(project("alpha", { ...inStaging, environments: {} })), state, { prune })
      assert.deepStrictEqual(codes(gone), ["/projects/0/caches/0/environment unknown_environment"])
    }
    const nowhere = plan(manifest(project("beta", inStaging)), [])
    assert.deepStrictEqual(codes(nowhere), ["/projects/0/caches/0/environment unknown_environment"])
  })

  it("deleting many wants the name of each project, wherever they are", () => {
    const state = ["alpha", "beta", "gamma"].flatMap((slug) => stored(project(slug, { caches: caches(6) })))
    const fewer = manifest(...["alpha", "beta", "gamma"].map((slug) => project(slug, { caches: caches(2) })))
    assert.deepStrictEqual(codes(plan(fewer, state)), [
      "/projects/0 confirm_deletion",
      "/projects/1 confirm_deletion",
      "/projects/2 confirm_deletion"
    ])
    // What is left to confirm are eight deletions.
    assert.deepStrictEqual(codes(plan(fewer, state, { confirm: ["beta"] })), [])
    assert.deepStrictEqual(codes(plan(fewer, state, { prune: false })), [])
  })

  it("deleting everything of a project wants its name, also when an environment takes it along", () => {
    const state = stored(
      project("alpha", { environments: { staging: {} }, caches: caches(3, "staging"), env: { A: "1" } })
    )
    const emptied = manifest(project("alpha", { environments: {}, env: { A: "****" } }))
    const made = plan(emptied, state)
    assert.deepStrictEqual(actions(made), ["delete alpha/Environment/staging"])
    assert.include(made.changes.at(-1)?.reasons[0]?.message ?? "", "3 resources in it")
    assert.deepStrictEqual(codes(made), [])
    const all = plan(
      manifest(project("alpha", { environments: {}, caches: [] })),
      stored(project("alpha", { environments: { staging: {} }, caches: caches(3, "staging") }))
    )
    assert.deepStrictEqual(codes(all), ["/projects/0 confirm_deletion"])
    const gone = plan(manifest(), state)
    assert.deepStrictEqual(codes(gone), ["/projects confirm_deletion"])
    assert.strictEqual(gone.changes[0]?.risk, "dangerous")
    assert.strictEqual(gone.changes[0]?.requires.role, "owner")
  })

  it("replacing destroys as well: many replacements are confirmed, with prune and without", () => {
    const elsewhere = (one: Current): Current =>
      one.kind === "Cache" ? { ...one, spec: { ...(one.spec as object), region: "elsewhere" } } : one
    const wanted = manifest(project("alpha", { caches: caches(11), databases: [database("main")] }))
    const state = stored(...(wanted.projects ?? [])).map(elsewhere)
    for (const prune of [true, false]) {
      const made = plan(wanted, state, { prune })
      assert.deepStrictEqual(codes(made), ["/projects/0 confirm_deletion"])
      const replaced = made.changes.filter(({ action }) => action === "replace")
      assert.strictEqual(replaced.length, 11)
      assert.deepStrictEqual(replaced[0]?.reasons[0]?.code, "immutable_field")
      assert.deepStrictEqual(replaced[0]?.patch, [
        { op: "test", path: "/region", value: "elsewhere" },
        { op: "replace", path: "/region", value: "local" }
      ])
      assert.strictEqual(replaced[0]?.requires.role, "owner")
    }
    const kept = plan(
      wanted,
      state.map((one) => ({ ...one, protected: one.name === "c10" })),
      {
        confirm: ["alpha"]
      }
    )
    assert.deepStrictEqual(codes(kept), ["/projects/0/caches/0 protected"])
  })

  it("protection of what is inside protects what is around it", () => {
    const state = stored(
      project("alpha", { environments: { staging: {} }, caches: caches(1, "staging") })
    ).map((one) => ({ ...one, protected: one.kind === "Cache" }))
    const confirm = ["alpha"]
    assert.deepStrictEqual(
      codes(plan(manifest(project("alpha", { environments: {} })), state, { confirm })),
      ["/projects/0/environments protected"]
    )
    assert.deepStrictEqual(codes(plan(manifest(), state, { confirm })), ["/projects protected"])
  })

  it("of many blockers the first hundred are listed and the others counted", () => {
    const made = plan(manifest(project("alpha", { caches: caches(500, "nowhere") })), [])
    assert.strictEqual(made.blockers.length, 101)
    assert.include(made.blockers.at(-1)?.message ?? "", "400 more")
  })

  it("without prune, variables that stay count against what an environment can hold", () => {
    const many = (from: number) =>
      Object.fromEntries(Array.from({ length: 600 }, (_, i) => [`K${from + i}`, "v"]))
    const state = stored(project("alpha", { env: many(0) }))
    const other = manifest(project("alpha", { env: many(600) }))
    assert.deepStrictEqual(codes(plan(other, state, { prune: false })), ["/projects/0/env invalid_spec"])
    assert.deepStrictEqual(codes(plan(other, state)), [])
  })
})

describe("what a plan keeps to itself", () => {
  it("internal fields stay as they are and are shown nowhere", () => {
    const wanted = manifest(project("alpha", { caches: caches(1) }))
    const state = stored(...(wanted.projects ?? [])).map((one) =>
      one.kind === "Cache" ? { ...one, spec: { ...(one.spec as object), credentialVersion: 7 } } : one
    )
    assert.deepStrictEqual(actions(plan(wanted, state)), [])
    const larger = manifest(project("alpha", { caches: [{ ...caches(1)[0]!, sku: "cache-s1" }] }))
    const made = plan(larger, state)
    assert.deepStrictEqual(made.changes.find(({ kind }) => kind === "Cache")?.patch, [
      { op: "test", path: "/sku", value: "cache-n1" },
      { op: "replace", path: "/sku", value: "cache-s1" }
    ])
    assert.deepInclude(made.steps[0]?.spec, { sku: "cache-s1", credentialVersion: 7 })
    assert.notInclude(JSON.stringify([made.changes, exportManifest("main", state)]), "credentialVersion")
  })

  it("of variables only those that changed are sealed again, and their patches hold neither value nor fingerprint", () => {
    const env = { SAME: "one", CHANGED: "two", GONE: "three", MASKED: "four" }
    const state = stored(project("alpha", { env }))
    const made = plan(
      manifest(project("alpha", { env: { SAME: "one", CHANGED: "2", MASKED: "****", NEW: "five" } })),
      state
    )
    const [step] = made.steps
    assert.deepStrictEqual(step?.secrets, { "variable/CHANGED": "2", "variable/NEW": "five" })
    assert.deepStrictEqual(step?.spec, {
      variables: { SAME: "fp(one)", CHANGED: "fp(2)", MASKED: "fp(four)", NEW: "fp(five)" },
      forBuilds: []
    })
    const change = made.changes.find(({ kind }) => kind === "EnvVariables")
    assert.sameDeepMembers(
      [...(change?.patch ?? [])],
      [
        { op: "test", path: "/variables/GONE", value: "****" },
        { op: "remove", path: "/variables/GONE" },
        { op: "test", path: "/variables/CHANGED", value: "****" },
        { op: "replace", path: "/variables/CHANGED", value: "****" },
        { op: "add", path: "/variables/NEW", value: "****" }
      ]
    )
    assert.notMatch(JSON.stringify(made.changes), /fp\(|three|five/)
    const kind = findKind("EnvVariables")!
    const before = publicSpec(kind, state.find((one) => one.kind === "EnvVariables")?.spec)
    const { newDocument } = jsonPatch.applyPatch(
      before,
      structuredClone(change?.patch ?? []) as Array<jsonPatch.Operation>
    )
    assert.deepStrictEqual(newDocument, publicSpec(kind, step?.spec))
  })

  it("an export reads the same however the state is ordered", () => {
    const state = stored(
      project("beta", {
        env: { B: "1", A: "2" },
        environments: { qa: {}, dev: {} },
        caches: caches(3, "qa")
      }),
      project("alpha", { databases: [database("main", "preview"), database("main")] })
    )
    const backwards = [...state].reverse().map((one) => ({
      ...one,
      spec: Object.fromEntries(Object.entries(one.spec as object).reverse())
    }))
    assert.strictEqual(
      JSON.stringify(exportManifest("main", state)),
      JSON.stringify(exportManifest("main", backwards))
    )
  })
})

describe("the order of kinds", () => {
  it("puts what is needed first, whatever the order of the list", () => {
    for (const list of [[...kinds], [...kinds].reverse()]) {
      const order = creationOrder(list)
      for (const kind of list) {
        const container = { organization: [], project: ["Project"], environment: ["Project", "Environment"] }
        const named = kind.references.map((reference) => reference.kind).filter((name) => name !== kind.name)
        for (const needed of [...container[kind.scope], ...named]) {
          assert.isBelow(order.get(needed) ?? Number.NaN, order.get(kind.name) ?? Number.NaN)
        }
      }
    }
  })
})
