/**
 * What people see. Data goes to stdout, everything else to stderr; colour only where a person reads it.
 *
 * Names, messages and events come from others, so nothing is written raw: only what `paint` put there reaches a
 * terminal as a command to it.
 */
import { randomBytes } from "node:crypto"
import { inspect } from "node:util"
import * as Effect from "effect/Effect"
import { Invocation } from "./invocation.ts"
import { visible, visibleJson, visibleLine } from "./visible.ts"

export type Style = "bold" | "gray" | "green" | "magenta" | "red" | "yellow"

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
