/** Measurements as text for terminals: numbers with their units, a line of blocks, and a chart. */
import type { Unit } from "#schemas/signal.ts"

type Value = number | null

const blocks = "▁▂▃▄▅▆▇█"

const scaled = (value: number, units: ReadonlyArray<string>, by: number): string => {
  let power = 0
  let rest = value
  while (Math.abs(rest) >= by && power < units.length - 1) {
    rest /= by
    power++
  }
  return `${Number.isInteger(rest) || Math.abs(rest) >= 100 ? Math.round(rest) : rest.toFixed(1)}${units[power]}`
}

const duration = (seconds: number): string => {
  if (seconds < 60) return `${Math.round(seconds)} s`
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min`
  if (seconds < 172_800) return `${(seconds / 3_600).toFixed(1)} h`
  return `${Math.floor(seconds / 86_400)} d`
}

const bytes = (value: number) => scaled(value, [" B", " KiB", " MiB", " GiB", " TiB"], 1_024)
const count = (value: number) => scaled(value, ["", " k", " M", " G"], 1_000)

export const shown = (value: Value, unit: Unit): string => {
  if (value === null) return "-"
  switch (unit) {
    case "boolean":
      return value === 0 ? "no" : value === 1 ? "yes" : value.toFixed(2)
    case "bytes":
      return bytes(value)
    case "bytes_per_second":
      return `${bytes(value)}/s`
    case "count":
      return count(value)
    case "milliseconds":
      return `${scaled(value, [""], 1_000)} ms`
    case "per_minute":
      return `${count(value)}/min`
    case "per_second":
      return `${count(value)}/s`
    case "percent":
      return `${value.toFixed(1)} %`
    case "seconds":
      return duration(value)
  }
}

const rangeOf = (values: ReadonlyArray<Value>) => {
  const numbers = values.filter((value) => value !== null)
  return numbers.length === 0 ? undefined : { min: Math.min(...numbers), max: Math.max(...numbers) }
}

/** One character for each value, between the least and the greatest; a blank where there is none. */
export const sparkline = (values: ReadonlyArray<Value>): string => {
  const range = rangeOf(values)
  if (range === undefined) return ""
  const { min, max } = range
  return values
    .map((value) => {
      if (value === null) return " "
      const level = max === min ? 0 : Math.round(((value - min) / (max - min)) * (blocks.length - 1))
      return blocks[level]
    })
    .join("")
}

/** Columns of blocks from zero, or from the least value where that is below, with the ends of both axes. */
export const chart = (
  values: ReadonlyArray<Value>,
  unit: Unit,
  times: { readonly from: string; readonly to: string },
  height = 8
): string => {
  const range = rangeOf(values)
  if (range === undefined) return "There is no sample in this time"
  const low = Math.min(0, range.min)
  const high = range.max === low ? low + 1 : range.max
  const labels = [shown(high, unit), shown(low, unit)]
  const width = Math.max(...labels.map(({ length }) => length))
  const eighths = values.map((value) =>
    value === null ? null : Math.max(1, Math.round(((value - low) / (high - low)) * height * blocks.length))
  )
  const lines = Array.from({ length: height }, (_, line) => {
    const below = (height - 1 - line) * blocks.length
    const cells = eighths.map((level) => {
      const part = level === null ? 0 : Math.min(blocks.length, level - below)
      return part <= 0 ? " " : blocks[part - 1]
    })
    const label = line === 0 ? labels[0] : line === height - 1 ? labels[1] : ""
    return `${(label ?? "").padStart(width)} ┤${cells.join("")}`.trimEnd()
  })
  const gap = Math.max(1, values.length - times.from.length - times.to.length)
  return [...lines, `${" ".repeat(width + 2)}${times.from}${" ".repeat(gap)}${times.to}`].join("\n")
}
