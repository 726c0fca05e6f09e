/**
 * How a kind appears in a manifest. A kind says this once, as data and pure functions; exporting, planning and
 * applying know of kinds nothing else.
 */
import type * as Schema from "effect/Schema"
import type { ManifestProject } from "./manifest.ts"
import { defaultEnvironment } from "./names.ts"

export type JsonObject = { readonly [key: string]: Schema.Json }

/** A resource as a manifest asks for it. */
export interface ManifestEntry {
  /** Where it stands, from the project on. */
  readonly path: ReadonlyArray<string | number>
  readonly environment: string | null
  readonly name: string
  /** Not yet completed by defaults. Sealed fields hold clear values, or the mask. */
  readonly spec: JsonObject
}

/** A resource as an export shows it: without internal fields, sealed values masked. */
export interface ExportedResource {
  readonly environment: string | null
  readonly name: string
  readonly spec: JsonObject
}

export interface ManifestMapping {
  /** The key that tells of the kind; null for the project itself, which is told of by being there. */
  readonly section: keyof ManifestProject | null
  /** What the project asks for; undefined when it does not have the key, which leaves the kind unmanaged. */
  readonly entries: (project: ManifestProject) => ReadonlyArray<ManifestEntry> | undefined
  /** Whether the section is the whole truth about this resource. Absent: about all of the kind in the project. */
  readonly manages?: (resource: { readonly environment: string | null; readonly name: string }) => boolean
  /** The part of a project that shows these resources, which come sorted. Inverse of `entries`. */
  readonly assemble: (resources: ReadonlyArray<ExportedResource>) => Partial<ManifestProject>
}

/** The usual section: a list of entries with a name, each in an environment. */
export const listSection = <Key extends ListKey>(section: Key): ManifestMapping => ({
  section,
  entries: (project) =>
    project[section]?.map(({ name, environment, ...spec }, index) => ({
      path: [section, index],
      environment: environment ?? defaultEnvironment,
      name,
      spec: present(spec)
    })),
  assemble: (resources) =>
    resources.length === 0
      ? {}
      : { [section]: resources.map(({ name, environment, spec }) => ({ name, environment, ...spec })) }
})
type ListKey = "databases" | "caches" | "crons" | "queues"

/** Leaves out what is undefined. */
export const present = (fields: { readonly [key: string]: Schema.Json | undefined }): JsonObject => {
  const kept: Record<string, Schema.Json> = {}
  for (const [key, value] of Object.entries(fields)) if (value !== undefined) kept[key] = value
  return kept
}
