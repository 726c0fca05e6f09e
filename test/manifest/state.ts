/** A model of the store for properties of plans: applying a plan's steps, and states made from random numbers. */

import type { Manifest, ManifestProject } from "#schemas/manifest.ts"
import type { Current, Plan } from "#src/manifest/plan.ts"

/** A small generator with a seed (mulberry32), so that a failing case can be run again. */
export const randomFrom = (seed: number) => {
  let state = seed
  const next = () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296
  }
  return {
    chance: (p: number) => next() < p,
    int: (max: number) => Math.floor(next() * max),
    pick: <A>(items: ReadonlyArray<A>): A => items[Math.floor(next() * items.length)]!,
    some: <A>(items: ReadonlyArray<A>, p: number): ReadonlyArray<A> => items.filter(() => next() < p)
  }
}
export type Randomness = ReturnType<typeof randomFrom>

const randomProject = (random: Randomness, slug: string): ManifestProject => {
  const custom = random.some(["staging", "qa"], 0.5)
  const places = ["production", "preview", ...custom]
  const project: ManifestProject = {
    name: `Project ${random.int(3)}`,
    slug,
    runtimeClass: random.pick(["scale-to-zero", "always-on"] as const),
    ...(random.chance(0.3) ? { region: "local" } : {}),
    ...(random.chance(0.3)
      ? { git: { repo: "acme/app", ...(random.chance(0.5) ? { ref: "main" } : {}) } }
      : {}),
    environments: Object.fromEntries(custom.map((name) => [name, {}])),
    env: Object.fromEntries(
      random.some(["A", "B", "C_1"], 0.6).map((key) => [key, `value ${random.int(3)}`])
    ),
    databases: random.some(places, 0.4).map((environment) => ({
      name: random.pick(["main", "data"]),
      environment,
      sku: random.pick(["db-n1", "db-s1", "db-s2"]),
      region: "local",
      ...(random.chance(0.5) ? { replicas: random.pick([0, 2] as const) } : {})
    })),
    caches: places.flatMap((environment) =>
      random.some(["one", "two", "three"], 0.4).map((name) => ({
        name,
        environment,
        region: "local",
        ...(random.chance(0.5) ? { sku: random.pick(["cache-n1", "cache-s1"] as const) } : {}),
        ...(random.chance(0.5) ? { persistence: random.pick(["aof", "none"] as const) } : {}),
        ...(random.chance(0.5) ? { evictionPolicy: random.pick(["noeviction", "allkeys-lru"] as const) } : {})
      }))
    )
  }
  return project
}

export const randomManifest = (random: Randomness): Manifest => ({
  version: 1,
  organization: "main",
  projects: random.some(["alpha", "beta", "gamma"], 0.7).map((slug) => randomProject(random, slug))
})

/** What the store holds after a plan's steps, deletions with everything inside. */
export const applySteps = (current: ReadonlyArray<Current>, steps: Plan["steps"]): ReadonlyArray<Current> => {
  let state = [...current]
  const projectOf = new Map(
    state.filter(({ kind }) => kind === "Project").map(({ uid, name }) => [uid, name])
  )
  for (const step of steps)
    if (step.kind === "Project" && step.action === "create") projectOf.set(step.uid, step.name)
  const doomed = (uid: string): ReadonlySet<string> => {
    const gone = new Set([uid])
    const target = state.find((one) => one.uid === uid)
    for (const one of state) {
      if (target?.kind === "Project" && one.projectId === uid) gone.add(one.uid)
      if (
        target?.kind === "Environment" &&
        one.projectId === target.projectId &&
        one.environment === target.name
      )
        gone.add(one.uid)
    }
    return gone
  }
  const ordered = [...steps].sort((a, b) => Number(a.action !== "delete") - Number(b.action !== "delete"))
  for (const step of ordered) {
    if (step.action === "delete") {
      const gone = doomed(step.uid)
      state = state.filter(({ uid }) => !gone.has(uid))
    } else if (step.action === "update") {
      state = state.map((one) =>
        one.uid === step.uid ? { ...one, spec: step.spec, generation: one.generation + 1 } : one
      )
    } else {
      state.push({
        uid: step.uid,
        kind: step.kind,
        projectId: step.projectId,
        project: step.kind === "Project" ? step.name : (projectOf.get(step.projectId ?? "") ?? null),
        environment: step.environment,
        name: step.name,
        parentUid: step.parentUid,
        spec: step.spec,
        generation: 1,
        protected: false,
        deleting: false
      })
    }
  }
  return state
}
