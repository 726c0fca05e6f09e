/**
 * What people see. Data goes to stdout, everything else to stderr; colour only where a person reads it.
 *
 * Names, messages and events come from others, so nothing is written raw: only what `paint` put there reaches a
 * terminal as a command to it.
 */
import { randomBytes } from "node:crypto"
import { inspect } from "node:util"
import * as Effect from "effect/Effect"
import type { PlanView } from "#src/manifest/api.ts"
import { Invocation } from "./invocation.ts"
import { visible, visibleJson, visibleLine } from "./visible.ts"

type Style = "bold" | "gray" | "green" | "magenta" | "red" | "yellow"

/** Text goes to both streams, so both must be read by a person. An empty NO_COLOR means nothing (no-color.org). */
const coloured = ({ env, stdout, stderr }: Invocation): boolean =>
  (env["NO_COLOR"] ?? "") === "" &&
  env["CI"] === undefined &&
  env["TERM"] !== "dumb" &&
  stdout.isTTY === true &&
  stderr.isTTY === true
/** Begins a command of our own in text that is not written yet. Nobody else can guess it. */
const mark = `\ufdd0${randomBytes(12).toString("hex")}`
const painted = new RegExp(`${mark}\\[\\d+m`, "g")

export const paint = (style: Style, text: string): string => {
  const [on, off] = inspect.colors[style] ?? []
  return on === undefined || off === undefined ? text : `${mark}[${on}m${text}${mark}[${off}m`
}

/** As the streams of a command may be given it. */
const shownText = (invocation: Invocation, text: string): string =>
  coloured(invocation) ? visible(text).replaceAll(mark, "\u001b") : visible(text).replace(painted, "")

const write = (stream: "stdout" | "stderr", textFor: (invocation: Invocation) => string) =>
  Effect.map(Invocation, (invocation) => void invocation[stream].write(`${textFor(invocation)}\n`))

/** For people, and for programs that read tables. */
export const out = (text: string) => write("stdout", (to) => shownText(to, text))
/** For programs: to the byte, but where a terminal would show it. */
export const exact = (text: string) =>
  write("stdout", (to) => (to.stdout.isTTY === true ? shownText(to, text) : text))
export const json = (value: unknown) => write("stdout", () => visibleJson(JSON.stringify(value, null, 2)))
export const jsonLine = (value: unknown) => write("stdout", () => visibleJson(JSON.stringify(value)))
/** Each is one line, whatever is in it. */
export const say = (...lines: ReadonlyArray<string>) =>
  write("stderr", (to) => lines.map((line) => shownText(to, visibleLine(line))).join("\n"))
/** Lines that were put together already. */
export const sayText = (text: string) => write("stderr", (to) => shownText(to, text))

/** Names and values below each other. */
export const facts = (rows: ReadonlyArray<readonly [string, string]>): string => {
  const width = Math.max(...rows.map(([name]) => name.length))
  return rows.map(([name, value]) => `${paint("bold", name.padEnd(width))}  ${visibleLine(value)}`).join("\n")
}

/** Rows in columns as wide as their widest cell. */
export const table = (head: ReadonlyArray<string>, rows: ReadonlyArray<ReadonlyArray<string>>): string => {
  const lines = rows.map((row) => row.map(visibleLine))
  const widthOf = (cell: string) => cell.replace(painted, "").length
  const widths = head.map((title, column) =>
    Math.max(title.length, ...lines.map((row) => widthOf(row[column] ?? "")))
  )
  const line = (cells: ReadonlyArray<string>) =>
    cells
      .map((cell, column) => cell + " ".repeat(Math.max(0, (widths[column] ?? 0) - widthOf(cell))))
      .join("  ")
      .trimEnd()
  return [paint("bold", line(head)), ...lines.map(line)].join("\n")
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
