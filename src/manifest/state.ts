/** The resources of an organization as a plan looks at them. */
import { addressOf } from "#src/store/records.ts"
import type { Current } from "./change.ts"

export interface State {
  readonly living: ReadonlyArray<Current>
  readonly byAddress: ReadonlyMap<string, Current>
  /** What is in a project, the project itself included. */
  readonly inProject: (slug: string) => ReadonlyArray<Current>
  /** What of it a manifest can tell of: previews of pull requests, and what is in them, come and go by themselves. */
  readonly lastingIn: (slug: string) => ReadonlyArray<Current>
  /** What goes with a resource when it is deleted, without itself. */
  readonly insideOf: (one: Current) => ReadonlyArray<Current>
}

export const stateOf = (all: ReadonlyArray<Current>): State => {
  const living = all.filter((one) => !one.deleting)
  const byProject = Map.groupBy(living, (one) => one.project)
  // It stands below the preview, and others below their project: the name says nothing.
  const ofPreviews = new Set(
    living
      .filter(({ kind, parentUid, projectId }) => kind === "Environment" && parentUid !== projectId)
      .map(({ project, name }) => `${project}/${name}`)
  )
  const byEnvironment = Map.groupBy(living, (one) => `${one.project}/${one.environment}`)
  const inProject = (slug: string) => byProject.get(slug) ?? []
  return {
    living,
    byAddress: new Map(living.map((one): [string, Current] => [addressOf(one), one])),
    inProject,
    lastingIn: (slug) =>
      inProject(slug).filter(
        ({ kind, environment, name }) =>
          !ofPreviews.has(`${slug}/${kind === "Environment" ? name : environment}`)
      ),
    insideOf: (one) => {
      if (one.kind === "Project") return inProject(one.name).filter(({ uid }) => uid !== one.uid)
      return one.kind === "Environment" ? (byEnvironment.get(`${one.project}/${one.name}`) ?? []) : []
    }
  }
}

/** Stands for what each resource was when a plan looked at it. */
export const baseOf = (all: Iterable<Current>): Record<string, string> => {
  const base: Record<string, string> = {}
  for (const one of all) if (!one.deleting) base[addressOf(one)] = `${one.uid} ${one.generation}`
  return base
}

/** Addresses that are not what they were. */
export const movedSince = (
  base: Readonly<Record<string, string>>,
  now: Readonly<Record<string, string>>
): ReadonlyArray<string> => [
  ...new Set([...Object.keys(base), ...Object.keys(now)].filter((address) => base[address] !== now[address]))
]
