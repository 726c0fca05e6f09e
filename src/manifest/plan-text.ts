/** A plan as people read it on a terminal. */
import { paint, type Style } from "#src/cli/output.ts"
import { visibleLine } from "#src/cli/visible.ts"
import type { PlanView } from "./api.ts"

type Plan = typeof PlanView.Type

const symbols: Readonly<Record<Plan["changes"][number]["action"], readonly [string, Style]>> = {
  create: ["+", "green"],
  update: ["~", "yellow"],
  replace: ["±", "magenta"],
  delete: ["-", "red"],
  noop: [" ", "gray"]
}
const shown = (value: unknown): string => (value === undefined ? "" : JSON.stringify(value))

type Change = Plan["changes"][number]

/** One line for each field: what it was, as the test before an operation tells it, and what it becomes. */
const patchLines = (patch: Change["patch"]): ReadonlyArray<string> =>
  patch.flatMap(({ op, path, value }, index) => {
    if (op === "test") return []
    const before = patch[index - 1]
    const was = before?.op === "test" && before.path === path ? shown(before.value) : ""
    if (op === "remove") return [`    - ${path} ${was}`.trimEnd()]
    if (op === "add" || was === "" || was === shown(value)) {
      return [`    ${op === "add" ? "+" : "~"} ${path} ${shown(value)}`]
    }
    return [`    ~ ${path} ${was} -> ${shown(value)}`]
  })

/** Not named by the manifest, and still not deleted, because the plan was made without prune. */
const isKept = ({ reasons }: Change): boolean => reasons.some(({ code }) => code === "needs_prune")

/** What applying the plan really does. */
export const effects = (changes: ReadonlyArray<Change>): ReadonlyArray<Change> =>
  changes.filter((change) => change.action !== "noop" && !isKept(change))

/** So many of those that are kept are named. */
const mostKept = 20

/** A plan for people: what changes, from what to what, why, and how risky that is. */
export const renderPlan = (plan: Plan): string => {
  const real = effects(plan.changes)
  const kept = plan.changes.filter(isKept)
  const changes = real.flatMap((change) => {
    const [symbol, style] = symbols[change.action]
    const risk = change.risk === "write" ? "" : `  [${change.risk}]`
    return [
      paint(style, `${symbol} ${change.address}${risk}`),
      ...(change.action === "delete" ? [] : patchLines(change.patch)),
      ...change.reasons
        .filter(({ code }) => code !== "missing" && code !== "different")
        .map(({ message }) => paint("gray", `    ${message}`))
    ]
  })
  const count = (action: Change["action"]) => real.filter((change) => change.action === action).length
  const place = (at: { readonly line?: number; readonly column?: number }) =>
    at.line === undefined ? "" : `${at.line}:${at.column ?? 1} `
  const more = kept.length - mostKept
  return [
    ...changes,
    ...(changes.length > 0 ? [""] : []),
    ...plan.drift.flatMap(({ address, differences, observedAt }) => [
      paint("yellow", `! ${address} has drifted${observedAt === null ? "" : ` (seen ${observedAt})`}`),
      ...differences.map(({ field, message }) => `    ${field}: ${message}`)
    ]),
    ...plan.warnings.map((warning) =>
      paint("yellow", `Warning ${place(warning)}${warning.pointer}: ${warning.message}`)
    ),
    ...plan.blockers.map((blocker) =>
      paint("red", `Blocked ${place(blocker)}${blocker.pointer}: ${blocker.message}`)
    ),
    ...kept.slice(0, mostKept).map(({ address }) => paint("gray", `  ${address}`)),
    ...(more > 0 ? [paint("gray", `  and ${more} more`)] : []),
    ...(kept.length > 0
      ? [paint("gray", `${kept.length} not in the manifest, kept (use --prune to delete)`)]
      : []),
    real.length === 0
      ? "Nothing to change."
      : `Plan: ${count("create")} to create, ${count("update")} to update, ${count("replace")} to replace, ${count("delete")} to delete.`
  ]
    .map(visibleLine)
    .join("\n")
}
