/** A plan while it is being made, and the project that entries are planned in. */
import { randomUUIDv7 } from "node:crypto"
import type { ManifestProject } from "#schemas/manifest.ts"
import { implicitEnvironments } from "#schemas/names.ts"
import { mostFaults, type Path, toPointer } from "#src/api/source-location.ts"
import { addressOf } from "#src/store/records.ts"
import type { Blocker, Current, PlannedChange, PlanOptions, Step, Warning } from "./change.ts"
import type { State } from "./state.ts"

export interface Draft {
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

export const newDraft = (state: State, options: PlanOptions): Draft => {
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
      if (blocked++ < mostFaults) blockers.push({ pointer: toPointer(path), code, message })
    },
    warn: (path, message) => {
      if (warned++ < mostFaults) warnings.push({ pointer: toPointer(path), message })
    },
    blockers: () =>
      blocked > mostFaults ? [...blockers, { ...more(blocked - mostFaults), code: "more" }] : blockers,
    warnings: () => (warned > mostFaults ? [...warnings, more(warned - mostFaults)] : warnings)
  }
}

/** The project that entries are planned in. */
export interface Place {
  readonly at: Path
  readonly slug: string
  readonly projectId: string
  /** Uids of its environments, those to come included. */
  readonly environments: ReadonlyMap<string, string>
  /** Environments that the manifest lists, the implicit ones included; undefined: it does not say. */
  readonly declared: ReadonlySet<string> | undefined
}

export const placeOf = (draft: Draft, project: ManifestProject, at: Path): Place => {
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
        generation: null
      })
    }
  }
  return place
}
