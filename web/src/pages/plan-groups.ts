/** A plan's changes as people review them: what cannot be undone first. */
import type { PlanView } from "#src/manifest/api.ts"

export type Plan = typeof PlanView.Type
export type Change = Plan["changes"][number]

export interface Group {
  readonly title: string
  readonly changes: ReadonlyArray<Change>
}

/** Not named by the manifest, and still not deleted, because the plan was made without prune. */
const isKept = ({ reasons }: Change): boolean => reasons.some(({ code }) => code === "needs_prune")

const titles = [
  ["delete", "Deletes"],
  ["replace", "Replaces: deletes and makes anew"],
  ["update", "Changes"],
  ["create", "Creates"]
] as const

const weight = { dangerous: 0, destructive: 1, write: 2, read: 3 }

export const groupsOf = (plan: Plan): ReadonlyArray<Group> => {
  const real = plan.changes.filter((change) => change.action !== "noop" && !isKept(change))
  const groups = titles.map(([action, title]) => ({
    title,
    changes: real.filter((change) => change.action === action).sort((a, b) => weight[a.risk] - weight[b.risk])
  }))
  return [
    ...groups,
    { title: "Kept, though the manifest does not name it", changes: plan.changes.filter(isKept) }
  ].filter(({ changes }) => changes.length > 0)
}

/** So many things change when it is applied. */
export const effectsOf = (plan: Plan): number => effects(plan).length

const effects = (plan: Plan) => plan.changes.filter((change) => change.action !== "noop" && !isKept(change))

/** So many things are deleted, for good or to be made anew. */
export const lostOf = (plan: Plan): number =>
  effects(plan).filter(({ action }) => action === "delete" || action === "replace").length

export const needsOwner = (plan: Plan): boolean =>
  effects(plan).some(({ requires }) => requires.role === "owner")

const shown = (value: unknown): string => (typeof value === "string" ? value : (JSON.stringify(value) ?? ""))

export interface PatchLine {
  readonly sign: "+" | "-"
  readonly text: string
}

/** What each field was, as the test before an operation tells it, and what it becomes. */
export const linesOfPatch = (patch: Change["patch"]): ReadonlyArray<PatchLine> =>
  patch.flatMap(({ op, path, value }, index): ReadonlyArray<PatchLine> => {
    if (op === "test") return []
    const field = path.replace(/^\//, "").replaceAll("/", ".")
    const before = patch[index - 1]
    const was: ReadonlyArray<PatchLine> =
      before?.op === "test" && before.path === path
        ? [{ sign: "-", text: `${field}: ${shown(before.value)}` }]
        : []
    if (op === "remove") return was.length > 0 ? was : [{ sign: "-", text: field }]
    return [...(op === "add" ? [] : was), { sign: "+", text: `${field}: ${shown(value)}` }]
  })
