/**
 * The difference between a manifest and what is stored, as a list of changes. Pure: making a plan writes nothing.
 *
 * A key that is left out is unmanaged. A key that is present is the whole truth for its list: what it does not name
 * is a deletion, shown always and carried out only with `prune`. Resources whose deletion was asked for count as gone.
 */
import { randomUUIDv7 } from "node:crypto"
import { isDeepStrictEqual } from "node:util"
import * as Result from "effect/Result"
import { kinds } from "#schemas/index.ts"
import type { Kind } from "#schemas/kind.ts"
import { type Manifest, type ManifestProject, unavailableSections } from "#schemas/manifest.ts"
import type { ManifestEntry, ManifestMapping } from "#schemas/manifest-mapping.ts"
import { implicitEnvironments } from "#schemas/names.ts"
import { addressOf } from "#src/store/records.ts"
import type { Blocker, Current, Plan, PlannedChange, PlanOptions, Step, Warning } from "./change.ts"
import { unconfirmed } from "./deletions.ts"
import { creationOrder, inOrder } from "./order.ts"
import { asObject, publicPatch } from "./patch.ts"
import { type Locate, mostFaults, type Path, toPointer } from "./place.ts"
import { baseOf, type State, stateOf } from "./state.ts"
import { wantedOf } from "./wanted.ts"

export type { Blocker, Current, Plan, PlannedChange, PlanOptions, Step, Warning } from "./change.ts"
export type { PatchOperation } from "./patch.ts"
export { baseOf, movedSince } from "./state.ts"

interface Mapped {
  readonly kind: Kind
  readonly mapping: ManifestMapping
}
const order = creationOrder(kinds)
const mapped: ReadonlyArray<Mapped> = kinds
  .flatMap((kind: Kind) => (kind.manifest === undefined ? [] : [{ kind, mapping: kind.manifest }]))
  .sort((a, b) => (order.get(a.kind.name) ?? 0) - (order.get(b.kind.name) ?? 0))
const kindOf = new Map(mapped.map(({ kind }): [string, Kind] => [kind.name, kind]))

export const makePlan = (
  manifest: Manifest,
  all: ReadonlyArray<Current>,
  locate: Locate,
  options: PlanOptions
): Plan => {
  const state = stateOf(all)
  const draft = newDraft(state, locate, options)
  for (const [index, project] of (manifest.projects ?? []).entries()) {
    planProject(draft, project, ["projects", index])
  }
  if (manifest.projects !== undefined) {
    const named = new Set(manifest.projects.map(({ slug }) => slug))
    for (const one of state.living) {
      if (one.kind === "Project" && !named.has(one.name)) planDeletion(draft, one, ["projects"], "projects")
    }
  }
  for (const { path, message } of unconfirmed(manifest, state, draft.doomed, options.confirm)) {
    draft.block(path, "confirm_deletion", message)
  }
  return {
    changes: inOrder(draft.changes, order),
    steps: inOrder(draft.steps, order),
    blockers: draft.blockers(),
    warnings: draft.warnings(),
    base: baseOf(state.living)
  }
}

/** A plan while it is being made. */
interface Draft {
  readonly state: State
  readonly options: PlanOptions
  readonly changes: Array<PlannedChange>
  readonly steps: Array<Step>
  /** What carrying the plan out deletes, by uid. */
  readonly doomed: Map<string, Current>
  readonly block: (path: Path, code: string, message: string) => void
  readonly warn: (path: Path, message: string) => void
  readonly blockers: () => ReadonlyArray<Blocker>
  readonly warnings: () => ReadonlyArray<Warning>
}

const newDraft = (state: State, locate: Locate, options: PlanOptions): Draft => {
  const blockers: Array<Blocker> = []
  const warnings: Array<Warning> = []
  let [blocked, warned] = [0, 0]
  const more = (count: number) => ({ pointer: "", message: `and ${count} more like these` })
  return {
    state,
    options,
    changes: [],
    steps: [],
    doomed: new Map(),
    block: (path, code, message) => {
      if (blocked++ < mostFaults) blockers.push({ pointer: toPointer(path), code, message, ...locate(path) })
    },
    warn: (path, message) => {
      if (warned++ < mostFaults) warnings.push({ pointer: toPointer(path), message, ...locate(path) })
    },
    blockers: () =>
      blocked > mostFaults ? [...blockers, { ...more(blocked - mostFaults), code: "more" }] : blockers,
    warnings: () => (warned > mostFaults ? [...warnings, more(warned - mostFaults)] : warnings)
  }
}

/** The project that entries are planned in. */
interface Place {
  readonly at: Path
  readonly slug: string
  readonly projectId: string
  /** Uids of its environments, those to come included. */
  readonly environments: ReadonlyMap<string, string>
  /** Environments that the manifest lists, the implicit ones included; undefined: it does not say. */
  readonly declared: ReadonlySet<string> | undefined
}

const notAvailable = (what: string) =>
  `"${what}" is not available in this release; take it out to plan the rest`

const planProject = (draft: Draft, project: ManifestProject, at: Path) => {
  for (const section of unavailableSections) {
    if (project[section] !== undefined) draft.block([...at, section], "not_available", notAvailable(section))
  }
  const place = placeOf(draft, project, at)
  const there = Map.groupBy(draft.state.inProject(project.slug), ({ kind }) => kind)
  for (const { kind, mapping } of mapped) {
    const entries = mapping.entries(project)
    if (entries === undefined) continue
    const current = there.get(kind.name) ?? []
    const wanted = new Set(entries.map((entry) => addressIn(place, kind, entry)))
    const surplus = current.filter(
      (one) => !wanted.has(addressOf(one)) && (mapping.manages === undefined || mapping.manages(one))
    )
    const taken = new Map<string | null, string>()
    if (kind.singleton && !draft.options.prune) {
      for (const { environment, name } of surplus) taken.set(environment, name)
    }
    for (const entry of entries) planEntry(draft, place, kind, entry, taken)
    if (mapping.section === null) continue
    for (const one of surplus) planDeletion(draft, one, [...at, mapping.section], mapping.section)
  }
}

const addressIn = (place: Place, kind: Kind, entry: ManifestEntry) =>
  addressOf({ kind: kind.name, project: place.slug, environment: entry.environment, name: entry.name })

const placeOf = (draft: Draft, project: ManifestProject, at: Path): Place => {
  const address = addressOf({ kind: "Project", project: null, environment: null, name: project.slug })
  const projectId = draft.state.byAddress.get(address)?.uid ?? randomUUIDv7()
  const environments = new Map<string, string>()
  for (const { kind, name, uid } of draft.state.inProject(project.slug)) {
    if (kind === "Environment") environments.set(name, uid)
  }
  const declared =
    project.environments === undefined
      ? undefined
      : new Set<string>([...implicitEnvironments, ...Object.keys(project.environments)])
  const place = { at, slug: project.slug, projectId, environments, declared }
  for (const name of declared ?? implicitEnvironments) {
    if (environments.has(name)) continue
    const uid = randomUUIDv7()
    environments.set(name, uid)
    // Every project has these: they are made without being named in the plan.
    if (implicitEnvironments.some((one) => one === name)) {
      draft.steps.push({
        address: addressOf({ kind: "Environment", project: project.slug, environment: null, name }),
        action: "create",
        uid,
        kind: "Environment",
        projectId,
        environment: null,
        name,
        parentUid: projectId,
        spec: {},
        secrets: {},
        generation: null,
        prune: false
      })
    }
  }
  return place
}

/** `taken` holds who is where in an environment that can hold only one of the kind. */
const planEntry = (
  draft: Draft,
  place: Place,
  kind: Kind,
  entry: ManifestEntry,
  taken: Map<string | null, string>
) => {
  const { environment, name } = entry
  const path = [...place.at, ...entry.path]
  const address = addressIn(place, kind, entry)
  const other = kind.singleton ? taken.get(environment) : undefined
  if (other !== undefined) {
    const message = `An environment has one ${kind.name}, and "${other}" is it; keep its name, or take it out and plan with prune`
    draft.block(path, "one_per_environment", message)
    return
  }
  taken.set(environment, name)
  if (environment !== null && !(place.declared ?? place.environments).has(environment)) {
    const message = `The project has no environment "${environment}"; declare it under environments`
    draft.block([...path, "environment"], "unknown_environment", message)
    return
  }
  const current = draft.state.byAddress.get(address)
  const before = asObject(current?.spec)
  const wanted = wantedOf(kind, entry, current === undefined ? undefined : before, draft.options)
  if (Result.isFailure(wanted)) {
    for (const obstacle of wanted.failure) {
      draft.block([...path, ...obstacle.path], obstacle.code, obstacle.message)
    }
    return
  }
  const { spec: after, secrets, kept } = wanted.success
  for (const key of kept) draft.warn(path, `"${key}" is not in the manifest and stays; prune removes it`)

  const change = { address, kind: kind.name, project: place.slug, environment, name }
  const creation = (uid: string): Step => ({
    address,
    action: "create",
    uid,
    kind: kind.name,
    projectId: kind.scope === "organization" ? null : place.projectId,
    environment,
    name,
    parentUid: parentOf(place, kind, environment),
    spec: after,
    secrets,
    generation: null,
    prune: false
  })
  if (current === undefined) {
    draft.changes.push({
      ...change,
      action: "create",
      risk: "write",
      patch: publicPatch(kind, {}, after),
      reasons: [{ code: "missing", message: `There is no ${kind.name} "${name}" yet` }],
      requires: { role: "admin", billing: true }
    })
    draft.steps.push(creation(newUid(place, kind, name)))
    return
  }
  const patch = isDeepStrictEqual(before, after) ? [] : publicPatch(kind, before, after)
  if (patch.length === 0) {
    draft.changes.push({
      ...change,
      action: "noop",
      risk: "read",
      patch,
      reasons: [],
      requires: { role: "member", billing: false }
    })
    return
  }
  const fixed = kind.immutable.filter((field) => !isDeepStrictEqual(before[field], after[field]))
  if (fixed.length > 0) {
    if (current.protected) {
      const message = `${kind.name} "${name}" is protected against deletion, and so against being replaced`
      draft.block(path, "protected", message)
    }
    draft.doomed.set(current.uid, current)
    draft.changes.push({
      ...change,
      action: "replace",
      risk: "destructive",
      patch,
      reasons: fixed.map((field) => ({
        code: "immutable_field",
        message: `"${field}" cannot change; the ${kind.name} is deleted with its data and made again`
      })),
      requires: { role: kind.deleteRole, billing: true }
    })
    draft.steps.push(deletion(current, false), creation(randomUUIDv7()))
    return
  }
  const changed = patch.map((operation) => operation.path).join(", ")
  draft.changes.push({
    ...change,
    action: "update",
    risk: "write",
    patch,
    reasons: [{ code: "different", message: `${changed} differs` }],
    requires: { role: "admin", billing: true }
  })
  draft.steps.push({ ...creation(current.uid), action: "update", generation: current.generation })
}

const parentOf = (place: Place, kind: Kind, environment: string | null): string | null => {
  if (kind.scope === "organization") return null
  return environment === null ? place.projectId : (place.environments.get(environment) ?? null)
}

/** Containers have theirs already: what is in them refers to it. */
const newUid = (place: Place, kind: Kind, name: string): string => {
  if (kind.name === "Project") return place.projectId
  return (kind.name === "Environment" ? place.environments.get(name) : undefined) ?? randomUUIDv7()
}

const deletion = (one: Current, prune: boolean): Step => ({
  address: addressOf(one),
  action: "delete",
  uid: one.uid,
  kind: one.kind,
  projectId: one.projectId,
  environment: one.environment,
  name: one.name,
  parentUid: null,
  spec: null,
  secrets: {},
  generation: one.generation,
  prune
})

const planDeletion = (draft: Draft, one: Current, path: Path, section: string) => {
  const kind = kindOf.get(one.kind)
  if (kind === undefined) return
  const inside = draft.state.insideOf(one)
  if (draft.options.prune) {
    const guarded = [one, ...inside].find((other) => other.protected)
    if (guarded !== undefined) {
      const message = `${addressOf(guarded)} is protected against deletion; remove the protection first`
      draft.block(path, "protected", message)
    }
    for (const gone of [one, ...inside]) draft.doomed.set(gone.uid, gone)
  }
  const needsOwner = [one, ...inside].some((other) => kindOf.get(other.kind)?.deleteRole === "owner")
  const contents = inside.length > 0 ? `; ${inside.length} resources in it go as well` : ""
  draft.changes.push({
    address: addressOf(one),
    kind: one.kind,
    project: one.project ?? one.name,
    environment: one.environment,
    name: one.name,
    action: "delete",
    risk: one.kind === "Project" ? "dangerous" : "destructive",
    patch: publicPatch(kind, asObject(one.spec), {}),
    reasons: [
      {
        code: "not_in_manifest",
        message: `"${section}" is in the manifest and does not name it${contents}`
      },
      ...(draft.options.prune
        ? []
        : [{ code: "needs_prune", message: "Kept unless the plan is made with prune" }])
    ],
    requires: { role: needsOwner ? "owner" : "admin", billing: false }
  })
  draft.steps.push(deletion(one, true))
}
