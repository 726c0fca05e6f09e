/**
 * A mistake that empties a manifest must not empty the platform: what would delete much has to be confirmed by the
 * name of each project that it is in.
 */
import type { Manifest } from "#schemas/manifest.ts"
import type { Path } from "#src/api/source-location.ts"
import type { Current } from "./change.ts"
import type { State } from "./state.ts"

/** A plan that deletes more than this, replacements included, wants to be confirmed. */
const manyDeletions = 10

/** They hold nothing of their own: what counts is what is in them. */
const containers: ReadonlySet<string> = new Set(["Project", "Environment"])

/**
 * `doomed` is what carrying the plan out deletes. Gives a sentence for each project that has to be confirmed and is
 * not.
 */
export const unconfirmed = (
  manifest: Manifest,
  state: State,
  doomed: ReadonlyMap<string, Current>,
  confirmed: ReadonlyArray<string>
): ReadonlyArray<{ readonly path: Path; readonly message: string }> => {
  const contents = [...doomed.values()].filter(
    ({ kind, project }) => !containers.has(kind) && !confirmed.includes(project ?? "")
  )
  const lost = Map.groupBy(contents, ({ project }) => project ?? "")
  for (const { kind, name } of doomed.values()) {
    if (kind === "Project" && !confirmed.includes(name) && !lost.has(name)) lost.set(name, [])
  }
  const indexOf = new Map((manifest.projects ?? []).map(({ slug }, index): [string, number] => [slug, index]))
  return [...lost].flatMap(([project, gone]) => {
    const there = state.inProject(project)
    const isGone = there.some(({ kind, uid }) => kind === "Project" && doomed.has(uid))
    const held = there.filter(({ kind }) => !containers.has(kind)).length
    const everything = isGone || (held > 1 && gone.length >= held)
    if (!everything && contents.length <= manyDeletions) return []
    const index = indexOf.get(project)
    const what = everything
      ? `everything in the project "${project}"`
      : `${gone.length} of the ${held} resources in the project "${project}"`
    return [
      {
        path: index === undefined ? ["projects"] : ["projects", index],
        message: `deletes ${what}; confirm it by the name of the project (confirm: ${project})`
      }
    ]
  })
}
