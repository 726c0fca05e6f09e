/** What the parts of a manifest say of each other: no name twice, nothing that points nowhere, no circles. */
import type { Manifest, ManifestProject } from "#schemas/manifest.ts"
import { circleMessage, missingMessage } from "#schemas/missing-reference.ts"
import { defaultEnvironment, implicitEnvironments } from "#schemas/names.ts"
import { circularIn } from "#schemas/reference-graph.ts"
import { type Path, type PathFault, toPointer } from "#src/api/source-location.ts"
import { type Entry, entriesIn, namedBy } from "./entries.ts"

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
  const sections = entriesIn(project)
  return [
    ...Object.keys(project.environments ?? {})
      .filter((slug) => implicit.has(slug))
      .map((slug) => ({
        path: [...at, "environments", slug],
        message: `"${slug}" exists in every project and is not declared`
      })),
    ...[...sections.values()].flatMap((entries) =>
      repeated(
        entries.map(({ kind, address, path }) => ({
          name: address,
          // What there is one of in its place has no name to give.
          path: [...at, ...path, ...(kind.singleton ? [] : ["name"])]
        }))
      )
    ),
    ...repeated(
      (project.storage ?? []).map(({ name }, index) => ({ name, path: [...at, "storage", index, "name"] }))
    ),
    ...repeated(
      (project.realtime ?? []).map(({ name, environment }, index) => ({
        name: `${environment ?? defaultEnvironment}/${name}`,
        path: [...at, "realtime", index, "name"]
      }))
    ),
    ...unlisted(sections, at),
    ...circles(sections, at)
  ]
}

type Sections = ReadonlyMap<string, ReadonlyArray<Entry>>

/** What has to be listed where the project has the section for it, and is not. */
const unlisted = (sections: Sections, at: Path): ReadonlyArray<PathFault> => {
  const listed = new Map(
    [...sections].map(([kind, entries]) => [kind, new Set(entries.map(({ address }) => address))] as const)
  )
  return [...sections.values()].flat().flatMap((entry) =>
    namedBy(entry.kind, entry).flatMap(({ address = "", ...named }) =>
      named.reference.listed !== true ||
      (named.reference.kind === "Environment" && implicit.has(named.target)) ||
      listed.get(named.reference.kind)?.has(address) !== false
        ? []
        : [
            {
              path: [...at, ...entry.path, ...named.path],
              message: missingMessage(named, named.lookedUpIn)
            }
          ]
    )
  )
}

/** References that lead back to where they come from, of those that must not. */
const circles = (sections: Sections, at: Path): ReadonlyArray<PathFault> => {
  const acyclic = [...sections.values()].flat().flatMap((entry) => {
    const named = namedBy(entry.kind, entry).filter(({ reference }) => reference.acyclic === true)
    return named.length === 0 ? [] : [{ entry, named }]
  })
  const circular = new Set(
    circularIn(
      new Map(
        acyclic.map(({ entry, named }) => [entry.address, named.flatMap(({ address }) => address ?? [])])
      )
    )
  )
  return acyclic.flatMap(({ entry, named }) =>
    circular.has(entry.address)
      ? named
          .filter(({ address = "" }) => circular.has(address))
          .map(({ path, reference }) => ({
            path: [...at, ...entry.path, ...path],
            message: circleMessage(reference)
          }))
      : []
  )
}
