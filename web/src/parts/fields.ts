/** JSON as lines of paths and values, for showing two of them beside each other. */

export interface FieldLine {
  readonly path: string
  readonly value: string
}

const longestValue = 2_000
/** A specification that is larger is cut: the whole is what the API has. */
const mostLines = 400

const shown = (value: unknown): string => {
  const text = typeof value === "string" ? value : JSON.stringify(value)
  return text.length > longestValue ? `${text.slice(0, longestValue)} …` : text
}

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

export const linesOf = (value: unknown): ReadonlyArray<FieldLine> => {
  const lines: Array<FieldLine> = []
  const walk = (path: string, at: unknown) => {
    if (lines.length >= mostLines) return
    if (isObject(at) && Object.keys(at).length > 0)
      for (const [key, inner] of Object.entries(at)) walk(path === "" ? key : `${path}.${key}`, inner)
    else if (path !== "") lines.push({ path, value: shown(at) })
  }
  walk("", value)
  return lines
}
