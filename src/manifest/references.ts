/** What the parts of a manifest say of each other: no name twice, nothing that points nowhere, no circles. */
import type { Manifest, ManifestProject } from "#schemas/manifest.ts"
import { defaultEnvironment, implicitEnvironments } from "#schemas/names.ts"
import type { Path, PathFault } from "./parse.ts"
import { toPointer } from "./parse.ts"

export const referenceFaults = (manifest: Manifest): ReadonlyArray<PathFault> => {
  const projects = manifest.projects ?? []
  return [
    ...repeated(
      projects.map((project, index) => ({ name: project.slug, path: ["projects", index, "slug"] }))
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
  const named = (
    section: "storage" | "queues" | "crons" | "databases" | "caches" | "realtime" | "aiGateways" | "alerts"
  ) =>
    repeated(
      (project[section] ?? []).map((entry, index) => ({
        name: `${"environment" in entry ? (entry.environment ?? defaultEnvironment) : ""}/${entry.name}`,
        path: [...at, section, index, "name"]
      }))
    )
  const declared = Object.keys(project.environments ?? {})
  return [
    ...declared
      .filter((slug) => implicit.has(slug))
      .map((slug) => ({
        path: [...at, "environments", slug],
        message: `"${slug}" exists in every project and is not declared`
      })),
    ...named("storage"),
    ...named("queues"),
    ...named("crons"),
    ...named("databases"),
    ...named("caches"),
    ...named("realtime"),
    ...named("aiGateways"),
    ...named("alerts"),
    ...repeated((project.domains ?? []).map((name, index) => ({ name, path: [...at, "domains", index] }))),
    ...queueFaults(project, at),
    ...alertFaults(project, at)
  ]
}

/** Dead letter queues exist in the same environment, and following them comes to an end. */
const queueFaults = (project: ManifestProject, at: Path): ReadonlyArray<PathFault> => {
  const queues = new Map(
    (project.queues ?? []).map((queue, index) => [
      `${queue.environment ?? defaultEnvironment}/${queue.name}`,
      { queue, path: [...at, "queues", index, "deadLetterQueue"] }
    ])
  )
  const nextOf = (id: string): string | undefined => {
    const target = queues.get(id)?.queue.deadLetterQueue
    return target === undefined || target === null ? undefined : `${id.split("/", 1)[0]}/${target}`
  }
  return [...queues].flatMap(([id, { path }]) => {
    const next = nextOf(id)
    if (next === undefined) return []
    if (!queues.has(next))
      return [{ path, message: `names the queue "${next.split("/")[1]}", which this project does not have` }]
    const seen = new Set([id])
    for (let step: string | undefined = next; step !== undefined; step = nextOf(step)) {
      if (step === id)
        return [{ path, message: "leads back to this queue: dead letter queues must not form a circle" }]
      if (seen.has(step)) return []
      seen.add(step)
    }
    return []
  })
}

/** An alert's scope names things of the same project, where the manifest tells of such things at all. */
const alertFaults = (project: ManifestProject, at: Path): ReadonlyArray<PathFault> =>
  (project.alerts ?? []).flatMap(({ scope }, index) =>
    (["database", "queue", "cron"] as const).flatMap((field) => {
      const name = scope[field]
      const section = project[`${field}s`]
      return name === undefined ||
        name === null ||
        section === undefined ||
        section.some((one) => one.name === name)
        ? []
        : [
            {
              path: [...at, "alerts", index, "scope", field],
              message: `names the ${field} "${name}", which this project does not have`
            }
          ]
    })
  )
