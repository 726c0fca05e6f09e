/**
 * How entries of a manifest map to resources, for every kind alike. Exporting, planning and applying know nothing of
 * kinds but this.
 */
import { Cache } from "#schemas/cache.ts"
import { Database } from "#schemas/database.ts"
import { EnvVariables, envVariablesName, variableField } from "#schemas/env-variables.ts"
import { Environment } from "#schemas/environment.ts"
import type { Json, Kind } from "#schemas/kind.ts"
import { type ManifestProject, masked } from "#schemas/manifest.ts"
import { defaultEnvironment, implicitEnvironments } from "#schemas/names.ts"
import { Project } from "#schemas/project.ts"

export type JsonObject = { readonly [key: string]: Json }

/** A resource as a manifest asks for it. */
export interface Entry {
  /** Where it stands, from the project on. */
  readonly path: ReadonlyArray<string | number>
  readonly environment: string | null
  readonly name: string
  /** Not yet completed by defaults. The text `****` stands for "what is there now". */
  readonly spec: JsonObject
  /** Clear values to seal, by secret field. */
  readonly secrets: Readonly<Record<string, string>>
}

/** A resource as an export shows it. */
export interface Exported {
  readonly environment: string | null
  readonly name: string
  readonly spec: JsonObject
}

export interface Mapping {
  readonly kind: Kind
  /** What the project asks for; undefined when it says nothing of this kind, which leaves it unmanaged. */
  readonly entries: (
    project: ManifestProject,
    fingerprint: (value: string) => string
  ) => ReadonlyArray<Entry> | undefined
  /** Whether a resource of the kind is among those that the section is the whole truth about. */
  readonly manages: (resource: { readonly environment: string | null; readonly name: string }) => boolean
  /** The part of a manifest's project that shows these resources. */
  readonly assemble: (resources: ReadonlyArray<Exported>) => Partial<ManifestProject>
  /**
   * Without prune nothing is lost, also inside of a resource: adds to the wanted specification what only the current
   * one has, and names it.
   */
  readonly keep?: (
    wanted: JsonObject,
    current: JsonObject
  ) => { readonly spec: JsonObject; readonly kept: ReadonlyArray<string> }
}

const always = () => true
const noSecrets = {}
const object = (value: object): JsonObject =>
  Object.fromEntries(Object.entries(value).filter(([, part]) => part !== undefined))

/** A section that is a list of named entries, each in an environment. */
const listed = <Key extends "databases" | "caches">(kind: Kind, section: Key): Mapping => ({
  kind,
  entries: (project) =>
    project[section]?.map((entry, index) => {
      const { name, environment, ...spec } = entry
      return {
        path: [section, index],
        environment: environment ?? defaultEnvironment,
        name,
        spec: object(spec),
        secrets: noSecrets
      }
    }),
  manages: always,
  assemble: (resources) =>
    resources.length === 0
      ? {}
      : { [section]: resources.map(({ name, environment, spec }) => ({ name, environment, ...spec })) }
})

const implicit: ReadonlySet<string> = new Set(implicitEnvironments)

/** In the order in which resources of one plan are created. */
export const mappings: ReadonlyArray<Mapping> = [
  {
    kind: Project,
    entries: ({ name, slug, runtimeClass, region, git }) => [
      {
        path: [],
        environment: null,
        name: slug,
        spec: object({ name, runtimeClass, region, git }),
        secrets: noSecrets
      }
    ],
    manages: always,
    assemble: ([project]) => (project === undefined ? {} : { slug: project.name, ...project.spec })
  },
  {
    kind: Environment,
    entries: ({ environments }) =>
      environments === undefined
        ? undefined
        : Object.keys(environments).map((name) => ({
            path: ["environments", name],
            environment: null,
            name,
            spec: {},
            secrets: noSecrets
          })),
    manages: ({ name }) => !implicit.has(name),
    assemble: (resources) => {
      const custom = resources.filter(({ name }) => !implicit.has(name))
      return custom.length === 0
        ? {}
        : { environments: Object.fromEntries(custom.map(({ name }) => [name, {}])) }
    }
  },
  {
    kind: EnvVariables,
    entries: ({ env }, fingerprint) => {
      if (env === undefined) return undefined
      const values = Object.entries(env)
      return [
        {
          path: ["env"],
          environment: defaultEnvironment,
          name: envVariablesName,
          spec: {
            variables: Object.fromEntries(
              values.map(([key, value]) => [key, value === masked ? masked : fingerprint(value)])
            )
          },
          secrets: Object.fromEntries(
            values.filter(([, value]) => value !== masked).map(([key, value]) => [variableField(key), value])
          )
        }
      ]
    },
    // A manifest tells of production's variables only.
    manages: ({ environment }) => environment === defaultEnvironment,
    assemble: (resources) => {
      const production = resources.find(({ environment }) => environment === defaultEnvironment)
      const variables = production?.spec["variables"]
      return typeof variables !== "object" || variables === null
        ? {}
        : {
            env: Object.fromEntries(
              Object.keys(variables)
                .sort()
                .map((key) => [key, masked])
            )
          }
    },
    keep: (wanted, current) => {
      const [mine, theirs] = [variablesOf(wanted), variablesOf(current)]
      const kept = Object.keys(theirs).filter((key) => !(key in mine))
      return { spec: { ...wanted, variables: { ...theirs, ...mine } }, kept }
    }
  },
  listed(Database, "databases"),
  listed(Cache, "caches")
]

const variablesOf = (spec: JsonObject): JsonObject => {
  const { variables } = spec
  return typeof variables === "object" && variables !== null && !Array.isArray(variables)
    ? (variables as JsonObject)
    : {}
}
