/** What people see. Data goes to stdout, everything else to stderr; colour only where a person reads it. */
import { styleText } from "node:util"
import * as Effect from "effect/Effect"
import type { PlanView } from "../api/definition/manifest.ts"

type Style = Parameters<typeof styleText>[0]

/** Text goes to both streams, so both must be read by a person. An empty NO_COLOR means nothing (no-color.org). */
const coloured = (): boolean =>
  (process.env["NO_COLOR"] ?? "") === "" &&
  process.env["CI"] === undefined &&
  process.env["TERM"] !== "dumb" &&
  process.stdout.isTTY === true &&
  process.stderr.isTTY === true
export const paint = (style: Style, text: string): string =>
  coloured() ? styleText(style, text, { validateStream: false }) : text

export const out = (text: string) => Effect.sync(() => void process.stdout.write(`${text}\n`))
export const json = (value: unknown) => out(JSON.stringify(value, null, 2))
export const say = (text: string) => Effect.sync(() => void process.stderr.write(`${text}\n`))

/** Names and values below each other. */
export const facts = (rows: ReadonlyArray<readonly [string, string]>): string => {
  const width = Math.max(...rows.map(([name]) => name.length))
  return rows.map(([name, value]) => `${paint("bold", name.padEnd(width))}  ${value}`).join("\n")
}

/** Rows in columns as wide as their widest cell. */
export const table = (head: ReadonlyArray<string>, rows: ReadonlyArray<ReadonlyArray<string>>): string => {
  const widths = head.map((title, column) =>
    Math.max(title.length, ...rows.map((row) => (row[column] ?? "").length))
  )
  const line = (cells: ReadonlyArray<string>) =>
    cells
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join("  ")
      .trimEnd()
  return [paint("bold", line(head)), ...rows.map(line)].join("\n")
}

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
const isKept = ({ action, reasons }: Change): boolean =>
  action === "delete" && reasons.some(({ code }) => code === "needs_prune")

/** What applying the plan really does. */
export const effects = (changes: ReadonlyArray<Change>): ReadonlyArray<Change> =>
  changes.filter((change) => change.action !== "noop" && !isKept(change))

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
    ...kept.map(({ address }) =>
      paint("gray", `  ${address} is not in the manifest and is kept (--prune deletes it)`)
    ),
    real.length === 0
      ? "Nothing to change."
      : `Plan: ${count("create")} to create, ${count("update")} to update, ${count("replace")} to replace, ${count("delete")} to delete.`
  ].join("\n")
}
