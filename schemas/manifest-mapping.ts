/**
 * How a kind appears in a manifest. A kind says this once, as data and pure functions: the document's schema is put
 * together from it, and reading, planning and exporting know of no kind.
 */
import * as Schema from "effect/Schema"
import { defaultEnvironment, EnvironmentSlug, Name } from "./names.ts"

export type JsonObject = { readonly [key: string]: Schema.Json }

/** "Leave what is there": what exports show instead of secret values. */
export const masked = "****"

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

export interface ManifestSection<Fields extends Schema.Struct.Fields = Schema.Struct.Fields> {
  /** The key that tells of the kind; null for the project itself, which is told of by being there. */
  readonly section: string | null
  /** The keys of a project that tell of the kind, each with what may stand there. */
  readonly fields: Fields
  /** What the project asks for; undefined when it does not have the key, which leaves the kind unmanaged. */
  entries(project: Schema.Struct.Type<Fields>): ReadonlyArray<ManifestEntry> | undefined
  /** Whether the section is the whole truth about this resource. Absent: about all of the kind in the project. */
  readonly manages?: (resource: { readonly environment: string | null; readonly name: string }) => boolean
  /** The part of a project that shows these resources, which come sorted. Inverse of `entries`. */
  assemble(resources: ReadonlyArray<ExportedResource>): JsonObject
}

/** Keeps the types of the fields while checking the shape. */
export const section = <const Fields extends Schema.Struct.Fields>(
  definition: ManifestSection<Fields>
): ManifestSection<Fields> => definition

/** For entries that may leave out the environment that they are in. */
export const usualEnvironment = Schema.optionalKey(EnvironmentSlug).annotateKey({
  description: "Slug of the environment that it is in",
  default: defaultEnvironment
})

/** Entries of one list: what is more is refused before anything is built from it. */
const longestList = 20_000

/**
 * The usual section: a list of entries with a name, each in an environment. `fields` are those of the specification
 * as input, and the environment.
 */
export const listSection = <
  const Key extends string,
  const Fields extends Schema.Struct.Fields & { readonly environment: Schema.Top }
>(
  key: Key,
  description: string,
  fields: Fields
) => {
  const entry = Schema.Struct({ name: Name, ...fields })
  const list = Schema.optionalKey(Schema.Array(entry).check(Schema.isMaxLength(longestList)))
  // A computed key has the type string to the compiler.
  const owned = { [key]: list.annotateKey({ description }) } as { readonly [K in Key]: typeof list }
  return section({
    section: key,
    fields: owned,
    entries: (project: object) => entriesOf(key, project),
    assemble: (resources) =>
      resources.length === 0
        ? {}
        : { [key]: resources.map(({ name, environment, spec }) => ({ name, environment, ...spec })) }
  })
}

const entriesOf = (key: string, project: object): ReadonlyArray<ManifestEntry> | undefined => {
  const listed = new Map<string, unknown>(Object.entries(project)).get(key)
  if (!Array.isArray(listed)) return undefined
  return listed.map((entry: unknown, index) => {
    const { name, environment, ...spec } = asObject(entry)
    return {
      path: [key, index],
      environment: typeof environment === "string" ? environment : defaultEnvironment,
      name: String(name),
      spec
    }
  })
}

/** The section of a kind that a project has one of: its specification as input, under one key. */
export const singletonSection = <const Key extends string, const Fields extends Schema.Struct.Fields>(
  key: Key,
  /** The one that the resource has in its project. */
  name: string,
  description: string,
  fields: Fields
) => {
  const spec = Schema.optionalKey(
    Schema.Struct(fields).annotate({ description: `${description}; left out, it stays as it is` })
  )
  // A computed key has the type string to the compiler.
  const owned = { [key]: spec } as { readonly [K in Key]: typeof spec }
  return section({
    section: key,
    fields: owned,
    entries: (project: object) => {
      const said = new Map<string, unknown>(Object.entries(project)).get(key)
      return isObject(said) ? [{ path: [key], environment: null, name, spec: { ...said } }] : undefined
    },
    assemble: ([one]) => (one === undefined ? {} : { [key]: one.spec })
  })
}

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value)
export const asObject = (value: unknown): JsonObject => (isObject(value) ? value : {})
