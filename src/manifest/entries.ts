/** The resources that a project of a manifest lists, and what resources name, both with addresses. */
import { findKind, kinds } from "#schemas/index.ts"
import type { Kind } from "#schemas/kind.ts"
import type { ManifestProject } from "#schemas/manifest.ts"
import { type Named, namedIn } from "#schemas/reference.ts"
import type { Path } from "#src/api/source-location.ts"
import { addressOf } from "#src/store/records.ts"

export interface Entry {
  readonly kind: Kind
  readonly project: string
  readonly environment: string | null
  readonly name: string
  readonly address: string
  /** Where it stands, from the project on. */
  readonly path: Path
  /** Not yet completed by defaults. */
  readonly spec: unknown
}

/** By kind, for the kinds whose section the project has. */
export const entriesIn = (project: ManifestProject): ReadonlyMap<string, ReadonlyArray<Entry>> =>
  new Map(
    kinds.flatMap((kind: Kind) => {
      const listed = kind.manifest?.entries(project)
      if (listed === undefined) return []
      const entries = listed.map(({ environment, name, path, spec }): Entry => {
        const address = addressOf({ kind: kind.name, project: project.slug, environment, name })
        return { kind, project: project.slug, environment, name, address, path, spec }
      })
      return [[kind.name, entries] as const]
    })
  )

export interface NamedAddress extends Named {
  /** Of what is named; undefined where the specification names a uid. */
  readonly address: string | undefined
  /** The environment that the name was looked up in; null where the named kind does not live in one. */
  readonly lookedUpIn: string | null
}

/** What a resource names, and where that is looked up. */
export const namedBy = (
  kind: Kind,
  resource: { readonly project: string | null; readonly environment: string | null; readonly spec: unknown }
): ReadonlyArray<NamedAddress> =>
  namedIn(kind.references, resource.spec).map((named) => {
    const { kind: target, by } = named.reference
    const scope = findKind(target)?.scope
    const lookedUpIn = scope === "environment" ? (named.environment ?? resource.environment) : null
    const project = scope === "organization" ? null : resource.project
    const address = { kind: target, project, environment: lookedUpIn, name: named.target }
    return { ...named, lookedUpIn, address: by === "uid" ? undefined : addressOf(address) }
  })
