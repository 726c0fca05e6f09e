/**
 * The current state as a manifest. Values are complete, also where they are the defaults, so that a default that
 * changes in a later release changes nobody's platform; secret values are masked. Planned against the same state, an
 * export changes nothing.
 */
import { stringify } from "yaml"
import type { Manifest, ManifestProject } from "#schemas/manifest.ts"
import type { JsonObject } from "./mapping.ts"
import { mappings } from "./mapping.ts"
import type { Current } from "./plan.ts"

const byName = (a: { readonly name: string }, b: { readonly name: string }) =>
  a.name < b.name ? -1 : a.name > b.name ? 1 : 0

/** Fails with a sentence when the state holds what a manifest cannot say, which would be a fault of the program. */
export const exportManifest = (organization: string, all: ReadonlyArray<Current>): Manifest => {
  const living = all.filter((one) => !one.deleting)
  const byProject = Map.groupBy(living, (one) => one.project)
  const projects = living
    .filter(({ kind }) => kind === "Project")
    .sort(byName)
    .map((project) => {
      const own = byProject.get(project.name) ?? []
      const parts = mappings.map(({ kind, assemble }) =>
        assemble(
          own
            .filter((one) => one.kind === kind.name)
            .sort((a, b) => (a.environment ?? "").localeCompare(b.environment ?? "") || byName(a, b))
            .map(({ environment, name, spec }) => ({
              environment,
              name,
              spec: publicFields(spec, kind.internal)
            }))
        )
      )
      return Object.assign({}, ...parts) as ManifestProject
    })
  return { version: 1, organization, projects }
}

const publicFields = (spec: unknown, internal: ReadonlyArray<string>): JsonObject =>
  Object.fromEntries(Object.entries(spec ?? {}).filter(([field]) => !internal.includes(field)))

/** YAML as people keep it in git: stable, without line folding. */
export const toYaml = (manifest: unknown): string =>
  stringify(manifest, { lineWidth: 0, aliasDuplicateObjects: false })
