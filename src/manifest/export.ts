/**
 * The current state as a manifest. Values are complete, also where they are the defaults, so that a default that
 * changes in a later release changes nobody's platform; secret values are masked. Planned against the same state, an
 * export changes nothing. What is stored and cannot be read is left out, and no plan deletes it for that.
 *
 * The same state gives the same text: everything is sorted by name or stands in the order of the schema.
 */
import { stringify } from "yaml"
import { isReadableSpec } from "#schemas/complete-spec.ts"
import { kinds } from "#schemas/index.ts"
import type { Kind } from "#schemas/kind.ts"
import type { Manifest, ManifestProject } from "#schemas/manifest.ts"
import { publicSpec } from "#schemas/public-spec.ts"
import type { Current } from "./change.ts"
import { stateOf } from "./state.ts"

export const exportManifest = (organization: string, all: ReadonlyArray<Current>): Manifest => {
  const state = stateOf(all)
  const projects = state.living
    .filter(({ kind }) => kind === "Project")
    .sort(byPlace)
    .map(({ name }) => exportProject(state.lastingIn(name)))
  return { version: 1, organization, projects }
}

const exportProject = (resources: ReadonlyArray<Current>): ManifestProject => {
  const ofKind = Map.groupBy(resources, ({ kind }) => kind)
  const parts = kinds.map((kind: Kind): Partial<ManifestProject> => {
    const { manifest } = kind
    if (manifest === undefined) return {}
    const shown = (ofKind.get(kind.name) ?? [])
      .filter((one) => isReadableSpec(kind, one.spec))
      .filter((one) => manifest.manages === undefined || manifest.manages(one))
      .sort(byPlace)
      .map(({ environment, name, spec }) => ({ environment, name, spec: publicSpec(kind, spec) }))
    return manifest.assemble(shown)
  })
  // A project's own part holds what is required; the compiler cannot see which part that is.
  return Object.assign({}, ...parts) as ManifestProject
}

const byPlace = (a: Current, b: Current) =>
  byText(a.environment ?? "", b.environment ?? "") || byText(a.name, b.name)
/** By code unit: the same on every machine, whatever its language. */
const byText = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0)

/** YAML as people keep it in git: stable, without line folding. */
export const toYaml = (manifest: unknown): string =>
  stringify(manifest, { lineWidth: 0, aliasDuplicateObjects: false })
