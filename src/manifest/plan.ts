/**
 * The difference between a manifest and what is stored, as a list of changes. Pure: making a plan writes nothing.
 *
 * A key that is left out is unmanaged. A key that is present is the whole truth for its list: what it does not name
 * is deleted with `prune`, and kept without. Resources whose deletion was asked for count as gone.
 */
import { randomUUIDv7 } from "node:crypto"
import { isDeepStrictEqual } from "node:util"
import * as Result from "effect/Result"
import { completeSpec, isReadableSpec } from "#schemas/complete-spec.ts"
import { findKind, kinds } from "#schemas/index.ts"
import type { Kind } from "#schemas/kind.ts"
import type { Manifest, ManifestProject } from "#schemas/manifest.ts"
import type { ManifestEntry, ManifestSection } from "#schemas/manifest-mapping.ts"
import { isPullRequestPreview } from "#schemas/names.ts"
import { regionFault } from "#schemas/placement.ts"
import { storedSpec } from "#schemas/public-spec.ts"
import { unavailableSections } from "#schemas/unavailable-sections.ts"
import type { Path } from "#src/api/source-location.ts"
import { addressOf } from "#src/store/records.ts"
import { type Current, keptWithoutPrune, type Plan, type PlanOptions, type Step } from "./change.ts"
import { unconfirmed } from "./deletions.ts"
import { desiredOf } from "./desired-spec.ts"
import { type Draft, newDraft, type Place, placeOf } from "./draft.ts"
import { creationOrder, inOrder } from "./order.ts"
import { asObject, publicPatch } from "./patch.ts"
import { planReferences } from "./planned-references.ts"
import { blockForbiddenCopy } from "./preview-data.ts"
import { baseOf, stateOf } from "./state.ts"

export type { Blocker, Current, Plan, PlannedChange, PlanOptions, Step, Warning } from "./change.ts"
export type { PatchOperation } from "./patch.ts"
export { movedSince } from "./state.ts"

interface Mapped {
  readonly kind: Kind
  readonly mapping: ManifestSection
}
const order = creationOrder(kinds)
const mapped: ReadonlyArray<Mapped> = kinds
  .flatMap((kind: Kind) => (kind.manifest === undefined ? [] : [{ kind, mapping: kind.manifest }]))
  .sort((a, b) => (order.get(a.kind.name) ?? 0) - (order.get(b.kind.name) ?? 0))
const kindOf = new Map(mapped.map(({ kind }): [string, Kind] => [kind.name, kind]))

export const makePlan = (manifest: Manifest, all: ReadonlyArray<Current>, options: PlanOptions): Plan => {
  const planning = planInSteps(manifest, all, options)
  for (;;) {
    const step = planning.next()
    if (step.done === true) return step.value
  }
}

/** Makes a plan in steps of a few milliseconds each, for those who have others to answer meanwhile. */
export function* planInSteps(
  manifest: Manifest,
  all: ReadonlyArray<Current>,
  options: PlanOptions
): Generator<void, Plan> {
  const draft = newDraft(stateOf(all), options)
  yield
  for (const [index, project] of (manifest.projects ?? []).entries()) {
    yield* planProject(draft, project, ["projects", index])
  }
  if (manifest.projects !== undefined) {
    const named = new Set(manifest.projects.map(({ slug }) => slug))
    for (const one of draft.state.living) {
      if (one.kind !== "Project" || named.has(one.name)) continue
      planSurplus(draft, one, ["projects"], "projects")
      if (draft.changes.length % perStep === 0) yield
    }
  }
  yield
  const depths = yield* planReferences(draft, manifest)
  for (const { path, message } of unconfirmed(manifest, draft.state, draft.doomed, options.confirm)) {
    draft.block(path, "confirm_deletion", message)
  }
  yield
  return {
    changes: inOrder(draft.changes, order, depths),
    steps: inOrder(draft.steps, order, depths),
    blockers: draft.blockers(),
    warnings: draft.warnings(),
    base: baseOf(draft.state.living)
  }
}

/** Entries that are looked at in one step. */
const perStep = 100

const notAvailable = (what: string) =>
  `"${what}" is not available in this release; take it out to plan the rest`

function* planProject(draft: Draft, project: ManifestProject, at: Path): Generator<void> {
  for (const section of unavailableSections) {
    if (Object.hasOwn(project, section)) draft.block([...at, section], "not_available", notAvailable(section))
  }
  blockForbiddenCopy(draft, project, at)
  const place = placeOf(draft, project, at)
  const there = Map.groupBy(draft.state.lastingIn(project.slug), ({ kind }) => kind)
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
    for (const [index, entry] of entries.entries()) {
      planEntry(draft, place, kind, entry, taken)
      if (index % perStep === 0) yield
    }
    if (mapping.section === null) continue
    for (const [index, one] of surplus.entries()) {
      planSurplus(draft, one, [...at, mapping.section], mapping.section)
      if (index % perStep === 0) yield
    }
  }
}

const addressIn = (place: Place, kind: Kind, entry: ManifestEntry) =>
  addressOf({ kind: kind.name, project: place.slug, environment: entry.environment, name: entry.name })

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
  // One that a user has had under such a name stays theirs.
  const isTheirs = current !== undefined && current.parentUid === current.projectId
  if (kind.name === "Environment" && isPullRequestPreview(name) && !isTheirs) {
    const message = `"${name}" is the name of a pull request's preview, which comes and goes by itself`
    draft.block(path, "preview_environment", message)
    return
  }
  const stored = current === undefined ? undefined : completeSpec(kind, current.spec)
  const before = asObject(stored === undefined ? {} : Result.getOrElse(stored, () => current?.spec))
  if (stored !== undefined && Result.isFailure(stored)) {
    const message = `What is stored of ${kind.name} "${name}" is not valid in this release, and is compared as it is`
    draft.warn(path, message)
  }
  const wanted = desiredOf(kind, entry, current === undefined ? undefined : before, draft.options)
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
    generation: null
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
    const nowhere = regionFault(kind, after, draft.options.regions)
    if (nowhere !== undefined)
      draft.block(
        path,
        "invalid_spec",
        `${kind.name} "${name}" would be made again, and its ${nowhere.field} ${nowhere.message}`
      )
    blockUnreadable(draft, draft.state.insideOf(current), path)
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
    draft.steps.push(deletion(current), creation(randomUUIDv7()))
    return
  }
  const changed = patch.flatMap(({ op, path }) => (op === "test" ? [] : [path])).join(", ")
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

const deletion = (one: Current): Step => ({
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
  generation: one.generation
})

/**
 * What no export shows is not deleted because a manifest does not name it. Of a kind that only a newer version knows, this
 * one can tell neither what goes with it nor who may delete it.
 */
const blockUnreadable = (draft: Draft, doomed: ReadonlyArray<Current>, path: Path) => {
  const unknown = doomed.find(({ kind }) => findKind(kind) === undefined)
  if (unknown !== undefined) {
    const message = `${addressOf(unknown)} would be deleted with it, and this release does not know its kind; plan with the release that made it`
    draft.block(path, "unknown_kind", message)
  }
  const unreadable = doomed.find(({ kind, spec }) => {
    const known = findKind(kind)
    return known !== undefined && !isReadableSpec(known, spec)
  })
  if (unreadable !== undefined) {
    const message = `${addressOf(unreadable)} would be deleted, and no manifest can name it, because its stored specification cannot be read; delete it by its own operation`
    draft.block(path, "unreadable_specification", message)
  }
}

/** What the manifest's list does not name: it goes with prune, and stays without. */
const planSurplus = (draft: Draft, one: Current, path: Path, section: string) => {
  const kind = kindOf.get(one.kind)
  if (kind === undefined) return
  const change = {
    address: addressOf(one),
    kind: one.kind,
    project: one.project ?? one.name,
    environment: one.environment,
    name: one.name
  }
  const unnamed = `"${section}" is in the manifest and does not name it`
  if (!draft.options.prune) {
    draft.changes.push({
      ...change,
      action: "noop",
      risk: "read",
      patch: [],
      reasons: [
        { code: "not_in_manifest", message: unnamed },
        { code: keptWithoutPrune, message: "Kept, because the plan is made without prune" }
      ],
      requires: { role: "member", billing: false }
    })
    return
  }
  const inside = draft.state.insideOf(one)
  blockUnreadable(draft, [one, ...inside], path)
  const guarded = [one, ...inside].find((other) => other.protected)
  if (guarded !== undefined) {
    const message = `${addressOf(guarded)} is protected against deletion; remove the protection first`
    draft.block(path, "protected", message)
  }
  for (const gone of [one, ...inside]) draft.doomed.set(gone.uid, gone)
  const needsOwner = [one, ...inside].some((other) => kindOf.get(other.kind)?.deleteRole === "owner")
  const contents = inside.length > 0 ? `; ${inside.length} resources in it go as well` : ""
  draft.changes.push({
    ...change,
    action: "delete",
    risk: one.kind === "Project" ? "dangerous" : "destructive",
    patch: publicPatch(kind, storedSpec(kind, one.spec), {}),
    reasons: [{ code: "not_in_manifest", message: unnamed + contents }],
    requires: { role: needsOwner ? "owner" : "admin", billing: false }
  })
  draft.steps.push(deletion(one))
}
