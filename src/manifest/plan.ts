/**
 * The difference between a manifest and what is stored, as a list of changes. Pure: making a plan writes nothing.
 *
 * A key that is left out is unmanaged. A key that is present is the whole truth for its list: what it does not name
 * is a deletion, shown always and carried out only with `prune`. Resources whose deletion was asked for count as gone.
 */
import { randomUUIDv7 } from "node:crypto"
import { isDeepStrictEqual } from "node:util"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import jsonPatch from "fast-json-patch"
import type { Json, Kind, Role } from "#schemas/kind.ts"
import { type Manifest, type ManifestProject, masked, unavailableSections } from "#schemas/manifest.ts"
import { implicitEnvironments } from "#schemas/names.ts"
import { addressOf } from "#src/store/records.ts"
import { type Entry, type JsonObject, type Mapping, mappings } from "./mapping.ts"
import { type Locate, type Path, toPointer } from "./parse.ts"

/** What a plan needs to know of a stored resource. */
export interface Current {
  readonly uid: string
  readonly kind: string
  readonly projectId: string | null
  readonly project: string | null
  readonly environment: string | null
  readonly name: string
  readonly spec: unknown
  readonly generation: number
  readonly protected: boolean
  readonly deleting: boolean
}

/** RFC 6902. */
export interface PatchOperation {
  readonly op: "add" | "remove" | "replace"
  readonly path: string
  readonly value?: Json
}

export type Action = "create" | "update" | "replace" | "delete" | "noop"
export type Risk = "read" | "write" | "destructive" | "dangerous"

export interface PlannedChange {
  readonly address: string
  readonly kind: string
  readonly project: string
  readonly environment: string | null
  readonly name: string
  readonly action: Action
  readonly risk: Risk
  readonly patch: ReadonlyArray<PatchOperation>
  readonly reasons: ReadonlyArray<{ readonly code: string; readonly message: string }>
  readonly requires: { readonly role: Role; readonly billing: boolean }
}

/** What carrying a change out takes. Clear secrets are in here: it is kept sealed. */
export interface Step {
  readonly address: string
  readonly action: "create" | "update" | "delete"
  readonly uid: string
  readonly kind: string
  readonly projectId: string | null
  readonly environment: string | null
  readonly name: string
  readonly parentUid: string | null
  readonly spec: JsonObject | null
  readonly secrets: Readonly<Record<string, string>>
  /** For updates and deletions: the generation that the plan was made for. */
  readonly generation: number | null
  /** Only carried out with prune. */
  readonly prune: boolean
}

export interface Blocker {
  readonly pointer: string
  readonly code: string
  readonly message: string
  readonly line?: number
  readonly column?: number
}
export type Warning = Omit<Blocker, "code">

export interface Plan {
  readonly changes: ReadonlyArray<PlannedChange>
  readonly steps: ReadonlyArray<Step>
  readonly blockers: ReadonlyArray<Blocker>
  readonly warnings: ReadonlyArray<Warning>
  /** What the plan saw, by address: applying it later needs the same. */
  readonly base: Readonly<Record<string, string>>
}

export interface PlanOptions {
  readonly prune: boolean
  /** Projects whose mass deletion is meant. */
  readonly confirm: ReadonlyArray<string>
  readonly fingerprint: (value: string) => string
}

/** More deletions than this want to be confirmed by name. */
const manyDeletions = 10

const codecs = new Map(
  mappings.map(({ kind }): [string, (input: unknown) => Result.Result<unknown, Schema.SchemaError>] => [
    kind.name,
    Schema.decodeUnknownResult(kind.spec)
  ])
)
const orderOf = new Map(mappings.map(({ kind }, index): [string, number] => [kind.name, index]))
const implicit: ReadonlySet<string> = new Set(implicitEnvironments)

const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value)
const asObject = (value: unknown): JsonObject => (isObject(value) ? value : {})
const without = (spec: JsonObject, fields: ReadonlyArray<string>): JsonObject =>
  fields.length === 0
    ? spec
    : Object.fromEntries(Object.entries(spec).filter(([field]) => !fields.includes(field)))
const only = (spec: JsonObject, fields: ReadonlyArray<string>): JsonObject =>
  Object.fromEntries(Object.entries(spec).filter(([field]) => fields.includes(field)))

/** Stands for what a resource was when a plan looked at it. */
export const baseOf = (current: Iterable<Current>): Record<string, string> => {
  const base: Record<string, string> = {}
  for (const one of current) if (!one.deleting) base[addressOf(one)] = `${one.uid} ${one.generation}`
  return base
}

/** Addresses that are not what they were. */
export const movedSince = (base: Readonly<Record<string, string>>, now: Readonly<Record<string, string>>) => [
  ...new Set([...Object.keys(base), ...Object.keys(now)].filter((address) => base[address] !== now[address]))
]

export const makePlan = (
  manifest: Manifest,
  all: ReadonlyArray<Current>,
  locate: Locate,
  options: PlanOptions
): Plan => {
  const living = all.filter((one) => !one.deleting)
  const byAddress = new Map(living.map((one): [string, Current] => [addressOf(one), one]))
  const byProject = Map.groupBy(living, (one) => one.project)
  const changes: Array<PlannedChange> = []
  const steps: Array<Step> = []
  const blockers: Array<Blocker> = []
  const warnings: Array<Warning> = []
  const block = (path: Path, code: string, message: string) =>
    blockers.push({ pointer: toPointer(path), code, message, ...locate(path) })

  for (const [index, project] of (manifest.projects ?? []).entries()) {
    planProject(project, ["projects", index])
  }
  if (manifest.projects !== undefined) {
    const named = new Set(manifest.projects.map(({ slug }) => slug))
    for (const one of living) {
      if (one.kind === "Project" && !named.has(one.name)) planDeletion(one, ["projects"], "projects")
    }
  }
  checkDeletions()

  const rank = (change: { readonly action: string; readonly kind: string }) =>
    change.action === "delete" ? 1_000 - (orderOf.get(change.kind) ?? 0) : (orderOf.get(change.kind) ?? 0)
  const sorted = <T extends { readonly action: string; readonly kind: string; readonly address: string }>(
    items: Array<T>
  ) => items.sort((a, b) => rank(a) - rank(b) || (a.address < b.address ? -1 : a.address > b.address ? 1 : 0))
  return { changes: sorted(changes), steps: sorted(steps), blockers, warnings, base: baseOf(living) }

  function planProject(project: ManifestProject, at: Path) {
    for (const section of unavailableSections) {
      if (project[section] !== undefined) {
        block(
          [...at, section],
          "not_available",
          `"${section}" is not available in this release; take it out to plan the rest`
        )
      }
    }
    const existing = byAddress.get(
      addressOf({ kind: "Project", project: null, environment: null, name: project.slug })
    )
    const projectId = existing?.uid ?? randomUUIDv7()
    /** Uids of the project's environments, the ones to come included. */
    const environments = new Map<string, string>()
    for (const one of byProject.get(project.slug) ?? []) {
      if (one.kind === "Environment") environments.set(one.name, one.uid)
    }
    for (const name of [...implicit, ...Object.keys(project.environments ?? {})]) {
      if (!environments.has(name)) environments.set(name, randomUUIDv7())
    }
    const place = { project: project.slug, projectId, environments, isNew: existing === undefined }

    for (const mapping of mappings) {
      const entries = mapping.entries(project, options.fingerprint)
      if (entries === undefined) continue
      const wanted = new Set<string>()
      const inEnvironment = new Map<string | null, string>()
      for (const entry of entries) {
        const path = [...at, ...entry.path]
        const address = addressOf({ kind: mapping.kind.name, project: project.slug, ...entry })
        wanted.add(address)
        const other = inEnvironment.get(entry.environment)
        if (mapping.kind.singleton && other !== undefined) {
          block(path, "one_per_environment", `An environment has one ${mapping.kind.name}; "${other}" is it`)
          continue
        }
        inEnvironment.set(entry.environment, entry.name)
        if (entry.environment !== null && !environments.has(entry.environment)) {
          block(
            [...path, "environment"],
            "unknown_environment",
            `The project has no environment "${entry.environment}"; declare it under environments`
          )
          continue
        }
        planEntry(mapping, entry, path, address, place)
      }
      if (mapping.kind.name === "Project") continue
      const section = entries[0]?.path[0] ?? sectionOf(mapping)
      for (const one of byProject.get(project.slug) ?? []) {
        if (one.kind !== mapping.kind.name || wanted.has(addressOf(one)) || !mapping.manages(one)) continue
        planDeletion(one, [...at, section], String(section))
      }
    }
    if (existing === undefined) {
      // Every project has these; they need no mention.
      for (const name of implicit) {
        steps.push({
          address: addressOf({ kind: "Environment", project: project.slug, environment: null, name }),
          action: "create",
          uid: environments.get(name) ?? randomUUIDv7(),
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
  }

  function planEntry(
    mapping: Mapping,
    entry: Entry,
    path: Path,
    address: string,
    place: {
      readonly project: string
      readonly projectId: string
      readonly environments: ReadonlyMap<string, string>
    }
  ) {
    const { kind } = mapping
    const current = byAddress.get(address)
    const before = asObject(current?.spec)
    const filled = unmask(entry.spec, current === undefined ? undefined : before)
    if (filled.missing !== undefined) {
      block(
        [...path, filled.missing],
        "masked_value_without_current",
        `${masked} means "leave what is there", but nothing is there; give the value`
      )
      return
    }
    for (const field of Object.keys(filled.spec)) {
      if (!kind.fields.includes(field) && filled.spec[field] !== 0) {
        block(
          [...path, field],
          "not_available",
          `"${field}" is not available in this release; take it out to plan the rest`
        )
      }
    }
    const kept = options.prune || current === undefined ? undefined : mapping.keep?.(filled.spec, before)
    const asked = only(kept?.spec ?? filled.spec, kind.fields)
    const decoded = codecs.get(kind.name)?.({ ...asked, ...only(before, kind.internal) })
    if (decoded === undefined || Result.isFailure(decoded)) {
      block(path, "invalid_spec", decoded === undefined ? "is of an unknown kind" : decoded.failure.message)
      return
    }
    const after = asObject(decoded.success)
    for (const key of kept?.kept ?? []) {
      warnings.push({
        pointer: toPointer(path),
        message: `"${key}" is not in the manifest and stays; prune removes it`,
        ...locate(path)
      })
    }
    const change = {
      address,
      kind: kind.name,
      project: place.project,
      environment: entry.environment,
      name: entry.name
    }
    const home = {
      projectId: kind.name === "Project" ? null : place.projectId,
      parentUid:
        kind.name === "Project"
          ? null
          : entry.environment === null
            ? place.projectId
            : (place.environments.get(entry.environment) ?? null)
    }
    const creation = (uid: string): Step => ({
      ...change,
      ...home,
      action: "create",
      uid,
      spec: after,
      secrets: entry.secrets,
      generation: null,
      prune: false
    })
    if (current === undefined) {
      const uid =
        kind.name === "Project"
          ? place.projectId
          : kind.name === "Environment"
            ? (place.environments.get(entry.name) ?? randomUUIDv7())
            : randomUUIDv7()
      changes.push({
        ...change,
        action: "create",
        risk: "write",
        patch: publicPatch(kind, {}, after),
        reasons: [{ code: "missing", message: `There is no ${kind.name} "${entry.name}" yet` }],
        requires: { role: "admin", billing: true }
      })
      steps.push(creation(uid))
      return
    }
    const patch = publicPatch(kind, before, after)
    if (isDeepStrictEqual(before, after)) {
      changes.push({
        ...change,
        action: "noop",
        risk: "read",
        patch: [],
        reasons: [],
        requires: { role: "member", billing: false }
      })
      return
    }
    const fixed = kind.immutable.filter((field) => !isDeepStrictEqual(before[field], after[field]))
    if (fixed.length > 0) {
      if (current.protected)
        block(
          path,
          "protected",
          `${kind.name} "${entry.name}" is protected against deletion and so against replacement`
        )
      changes.push({
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
      steps.push(deletion(current, false), creation(randomUUIDv7()))
      return
    }
    changes.push({
      ...change,
      action: "update",
      risk: "write",
      patch,
      reasons: [
        { code: "different", message: `${[...new Set(patch.map(({ path: at }) => at))].join(", ")} differs` }
      ],
      requires: { role: "admin", billing: true }
    })
    const known = asObject(asObject(before)["variables"])
    const changed = Object.fromEntries(
      Object.entries(entry.secrets).filter(([field]) => {
        const key = field.slice(field.indexOf("/") + 1)
        return known[key] !== asObject(after["variables"])[key]
      })
    )
    steps.push({
      ...creation(current.uid),
      action: "update",
      secrets: changed,
      generation: current.generation
    })
  }

  function deletion(one: Current, prune: boolean): Step {
    return {
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
    }
  }

  function planDeletion(one: Current, path: Path, section: string) {
    const kind = mappings.find((mapping) => mapping.kind.name === one.kind)?.kind
    if (kind === undefined) return
    const inside = insideOf(one)
    const roles = [one, ...inside].map(
      ({ kind: name }) => mappings.find((m) => m.kind.name === name)?.kind.deleteRole
    )
    const guarded = [one, ...inside].find((other) => other.protected)
    if (options.prune && guarded !== undefined) {
      block(
        path,
        "protected",
        `${addressOf(guarded)} is protected against deletion; remove the protection first`
      )
    }
    changes.push({
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
          message: `"${section}" is in the manifest and does not name it${inside.length > 0 ? `; ${inside.length} resources in it go as well` : ""}`
        },
        ...(options.prune
          ? []
          : [{ code: "needs_prune", message: "Kept unless the plan is made with prune" }])
      ],
      requires: { role: roles.includes("owner") ? "owner" : "admin", billing: false }
    })
    steps.push(deletion(one, true))
  }

  function insideOf(one: Current): ReadonlyArray<Current> {
    if (one.kind === "Project")
      return (byProject.get(one.name) ?? []).filter((other) => other.kind !== "Project")
    if (one.kind !== "Environment") return []
    return (byProject.get(one.project) ?? []).filter((other) => other.environment === one.name)
  }

  /** A mistake that empties a manifest must not empty the platform. */
  function checkDeletions() {
    if (!options.prune) return
    const deletions = changes.filter(({ action }) => action === "delete" || action === "replace")
    for (const [project, own] of Map.groupBy(deletions, (change) => change.project)) {
      if (options.confirm.includes(project)) continue
      const contents = (byProject.get(project) ?? []).filter(
        ({ kind }) => kind !== "Project" && kind !== "Environment"
      )
      const gone = own.filter(({ kind }) => kind !== "Project" && kind !== "Environment").length
      const everything =
        own.some(({ kind }) => kind === "Project") || (contents.length > 1 && gone >= contents.length)
      if (everything || own.length > manyDeletions) {
        blockers.push({
          pointer: "/projects",
          code: "confirm_deletion",
          message: everything
            ? `This deletes everything of the project "${project}"; confirm it by name (confirm: ${project})`
            : `This deletes ${own.length} resources of the project "${project}"; confirm it by name (confirm: ${project})`
        })
      }
    }
  }
}

const sectionOf = (mapping: Mapping): string =>
  ({ Environment: "environments", EnvVariables: "env", Database: "databases", Cache: "caches" })[
    mapping.kind.name
  ] ?? ""

/** Puts what is there where the manifest says `****`. */
const unmask = (
  spec: JsonObject,
  current: JsonObject | undefined
): { readonly spec: JsonObject; readonly missing?: string } => {
  const variables = spec["variables"]
  if (!isObject(variables)) return { spec }
  const known = asObject(current?.["variables"])
  const filled: Record<string, JsonObject[string]> = {}
  for (const [key, value] of Object.entries(variables)) {
    const there = value === masked ? known[key] : value
    if (there === undefined) return { spec, missing: key }
    filled[key] = there
  }
  return { spec: { ...spec, variables: filled } }
}

/** RFC 6902, of what users may see: no internal fields, no fingerprints. */
const publicPatch = (kind: Kind, before: JsonObject, after: JsonObject): ReadonlyArray<PatchOperation> =>
  jsonPatch
    .compare(without(before, kind.internal), without(after, kind.internal))
    .map((operation): PatchOperation => {
      if (operation.op === "remove") return { op: "remove", path: operation.path }
      if (operation.op !== "add" && operation.op !== "replace") {
        throw new Error(`An operation that comparing does not make: ${operation.op}`)
      }
      const { op, path } = operation
      const value: Json = operation.value
      if (kind.name !== "EnvVariables") return { op, path, value }
      const hidden = isObject(value)
        ? Object.fromEntries(Object.keys(value).map((key) => [key, masked]))
        : masked
      return { op, path, value: hidden }
    })
