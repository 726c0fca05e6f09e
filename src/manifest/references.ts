/** What the parts of a manifest say of each other: no name twice, nothing that points nowhere, no circles. */
import type { Manifest, ManifestProject } from "#schemas/manifest.ts"
import { defaultEnvironment, implicitEnvironments } from "#schemas/names.ts"
import { type Path, type PathFault, toPointer } from "./place.ts"

export const referenceFaults = (manifest: Manifest): ReadonlyArray<PathFault> => {
  const projects = manifest.projects ?? []
  return [
    ...repeated(
      projects.map((project, index) => ({ name: project.slug, path: ["projects", index, "slug"] }))
    ),
    ...repeated(
      projects.flatMap(({ domains }, index) =>
        (domains ?? []).map((name, place) => ({ name, path: ["projects", index, "domains", place] }))
      )
    ),
    ...projects.flatMap((project, index) => projectFaults(project, ["projects", index]))
  ]
}

interface Named {
  readonly name: string
  readonly path: Path
}

const repeated = (names: ReadonlyArray<Named>): ReadonlyArray<PathFault> => {
  const first = new Map<string, Path>()
  return names.flatMap(({ name, path }) => {
    const before = first.get(name)
    if (before === undefined) {
      first.set(name, path)
      return []
    }
    return [
      { path, message: `"${name.split("/").at(-1)}" is named twice; the first is at ${toPointer(before)}` }
    ]
  })
}

const implicit: ReadonlySet<string> = new Set(implicitEnvironments)

const projectFaults = (project: ManifestProject, at: Path): ReadonlyArray<PathFault> => {
  const inProject = (section: "storage" | "alerts") =>
    repeated(
      (project[section] ?? []).map(({ name }, index) => ({ name, path: [...at, section, index, "name"] }))
    )
  const inEnvironment = (section: "queues" | "crons" | "databases" | "caches" | "realtime" | "aiGateways") =>
    repeated(
      (project[section] ?? []).map(({ name, environment }, index) => ({
        name: `${environment ?? defaultEnvironment}/${name}`,
        path: [...at, section, index, "name"]
      }))
    )
  return [
    ...Object.keys(project.environments ?? {})
      .filter((slug) => implicit.has(slug))
      .map((slug) => ({
        path: [...at, "environments", slug],
        message: `"${slug}" exists in every project and is not declared`
      })),
    ...inProject("storage"),
    ...inProject("alerts"),
    ...inEnvironment("queues"),
    ...inEnvironment("crons"),
    ...inEnvironment("databases"),
    ...inEnvironment("caches"),
    ...inEnvironment("realtime"),
    ...inEnvironment("aiGateways"),
    ...repeated(
      (project.customerPayments ?? []).map(({ environment }, index) => ({
        name: environment ?? defaultEnvironment,
        path: [...at, "customerPayments", index]
      }))
    ),
    ...queueFaults(project, at),
    ...alertFaults(project, at),
    ...branchFaults(project, at)
  ]
}

/** Dead letter queues exist in the same environment, and following them comes to an end. */
const queueFaults = (project: ManifestProject, at: Path): ReadonlyArray<PathFault> => {
  const nextOf = new Map<string, { readonly next: string | undefined; readonly path: Path }>()
  for (const [index, { name, environment, deadLetterQueue }] of (project.queues ?? []).entries()) {
    const place = environment ?? defaultEnvironment
    nextOf.set(`${place}/${name}`, {
      next: typeof deadLetterQueue === "string" ? `${place}/${deadLetterQueue}` : undefined,
      path: [...at, "queues", index, "deadLetterQueue"]
    })
  }
  const faults: Array<PathFault> = []
  /** Queues that were followed to their end: each is passed through once. */
  const settled = new Set<string>()
  for (const start of nextOf.keys()) {
    const trail: Array<string> = []
    const passed = new Set<string>()
    let id: string | undefined = start
    while (id !== undefined && !settled.has(id) && !passed.has(id)) {
      trail.push(id)
      passed.add(id)
      const queue = nextOf.get(id)
      id = queue?.next
      if (queue !== undefined && id !== undefined && !nextOf.has(id)) {
        const missing = id.slice(id.indexOf("/") + 1)
        faults.push({ path: queue.path, message: `names the queue "${missing}", ${notThere}` })
        id = undefined
      }
    }
    if (id !== undefined && passed.has(id)) {
      for (const member of trail.slice(trail.indexOf(id))) {
        faults.push({
          path: nextOf.get(member)?.path ?? at,
          message: "leads back to this queue: dead letter queues must not form a circle"
        })
      }
    }
    for (const one of trail) settled.add(one)
  }
  return faults
}
const notThere = "which this project does not have in this environment"

/** An alert's scope names things of the same project, where the manifest tells of such things at all. */
const alertFaults = (project: ManifestProject, at: Path): ReadonlyArray<PathFault> => {
  const alerts = project.alerts ?? []
  if (alerts.length === 0) return []
  const namesOf = (section: ReadonlyArray<{ readonly name: string }> | undefined) =>
    section === undefined ? undefined : new Set(section.map(({ name }) => name))
  const known = {
    environment:
      project.environments === undefined
        ? undefined
        : new Set([...implicitEnvironments, ...Object.keys(project.environments)]),
    database: namesOf(project.databases),
    queue: namesOf(project.queues),
    cron: namesOf(project.crons)
  }
  return alerts.flatMap(({ scope }, index) =>
    (["environment", "database", "queue", "cron"] as const).flatMap((field) => {
      const name = scope[field]
      return typeof name !== "string" || known[field]?.has(name) !== false
        ? []
        : [
            {
              path: [...at, "alerts", index, "scope", field],
              message: `names the ${field} "${name}", which this project does not have`
            }
          ]
    })
  )
}

/** A branch is made from a database that is there, where the manifest tells of databases at all. */
const branchFaults = (project: ManifestProject, at: Path): ReadonlyArray<PathFault> => {
  const { databaseBranch: branch, databases } = project
  if (branch === undefined || databases === undefined) return []
  const isSource = databases.some(
    ({ name, environment }) =>
      name === branch.sourceDatabase && (environment ?? defaultEnvironment) === branch.sourceEnvironment
  )
  return isSource
    ? []
    : [
        {
          path: [...at, "databaseBranch", "sourceDatabase"],
          message: `names the database "${branch.sourceDatabase}", which this project does not have in "${branch.sourceEnvironment}"`
        }
      ]
}
