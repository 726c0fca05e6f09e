/** Digests tell whether two plans do the same. */
import { createHash } from "node:crypto"
import { assert, it } from "@effect/vitest"
import type { Manifest } from "#schemas/manifest.ts"
import { digestOf } from "#src/manifest/digest.ts"
import { type Current, makePlan } from "#src/manifest/plan.ts"
import { applySteps, randomFrom, randomManifest } from "./state.ts"

const fingerprint = (value: string) => createHash("sha256").update(`key${value}`).digest("hex")
const plan = (manifest: Manifest, current: ReadonlyArray<Current>) =>
  makePlan(manifest, current, {
    ...{ prune: true, confirm: ["alpha", "beta", "gamma"], fingerprint, regions: ["local"] }
  })
const digest = (manifest: Manifest, current: ReadonlyArray<Current>) =>
  digestOf(plan(manifest, current), fingerprint)

it("plans of the same manifest for the same state have the same digests, and no others do", () => {
  for (let seed = 1; seed <= 20; seed++) {
    const random = randomFrom(seed)
    const [before, after] = [randomManifest(random), randomManifest(random)]
    const current = applySteps([], plan(before, []).steps)
    const seen = digest(after, current)
    // What is to be made has other ids each time.
    assert.deepStrictEqual(digest(after, current), seen, `seed ${seed}`)
    const other = randomManifest(random)
    const does = (manifest: Manifest) => JSON.stringify(plan(manifest, current).changes)
    assert.strictEqual(
      digest(other, current).whole === seen.whole,
      does(other) === does(after),
      `seed ${seed}`
    )
    assert.deepStrictEqual(
      Object.keys(seen.parts),
      plan(after, current)
        .changes.flatMap(({ action, address }) => (action === "noop" ? [] : [address]))
        .sort()
    )
  }
})

const shop = (project: object): Manifest => ({
  version: 1,
  organization: "main",
  projects: [{ slug: "shop", name: "Shop", runtimeClass: "scale-to-zero", ...project }]
})

it("a value, a state before and the thing itself count; a change elsewhere is one of the base alone", () => {
  const first = shop({ env: { TOKEN: "one" } })
  const current = applySteps([], plan(first, []).steps)
  const wanted = shop({ env: { TOKEN: "two" } })
  const seen = digest(wanted, current)
  assert.notStrictEqual(digest(shop({ env: { TOKEN: "three" } }), current).whole, seen.whole)
  const renamed = current.map((one) =>
    one.kind === "Project" ? { ...one, spec: { name: "Another", runtimeClass: "scale-to-zero" } } : one
  )
  assert.notStrictEqual(digest(wanted, renamed).whole, seen.whole)
  // Made again meanwhile, by the same name.
  const again = current.map((one) => (one.kind === "Project" ? one : { ...one, uid: `other-${one.uid}` }))
  assert.notStrictEqual(digest(wanted, again).whole, seen.whole)
  const moved = digest(
    wanted,
    current.map((one) => (one.name === "preview" ? { ...one, generation: 9 } : one))
  )
  assert.strictEqual(moved.whole, seen.whole)
  assert.notStrictEqual(moved.base, seen.base)
})
