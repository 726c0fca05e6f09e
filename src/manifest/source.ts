/**
 * Text to value: JSON or YAML, with the place of every part.
 *
 * What a text may cost is bounded before anything large is built from it: its length, its depth, the number of its
 * parts and the length of each list. A key that stands twice in one map is refused in both languages.
 */
import * as Result from "effect/Result"
import { readJson } from "#src/api/json.ts"
import { type Path, type PathFault, type ReadResult, refused } from "#src/api/source-location.ts"
import { readYaml } from "./yaml.ts"

/** Characters of a text that is read at all. */
const longestSource = 4 * 1024 * 1024
/** Entries of one list or map. */
const mostEntries = 20_000
/** Values in a document, lists and maps included. */
const mostValues = 200_000

export const parseSource = (source: string): ReadResult => {
  if (source.length > longestSource) {
    return refused(`has ${source.length} characters; at most ${longestSource} are read`)
  }
  // What starts with a brace and is no JSON may be YAML in flow style, and what is neither is reported from there.
  const read = readJson(source) ?? readYaml(source)
  if (Result.isFailure(read)) return read
  const tooLarge = oversized(read.success.value)
  return tooLarge === undefined
    ? read
    : refused(tooLarge.message, read.success.locate(tooLarge.path), tooLarge.path)
}

/** The first part that has more in it than is read. */
const oversized = (root: unknown): PathFault | undefined => {
  const pending: Array<{ readonly value: object; readonly path: Path }> = []
  let values = 0
  const enter = (value: unknown, path: Path) => {
    values += 1
    if (typeof value === "object" && value !== null) pending.push({ value, path })
  }
  enter(root, [])
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const { value, path } = next
    const entries = Array.isArray(value) ? value : Object.values(value)
    if (entries.length > mostEntries) {
      return { path, message: `has ${entries.length} entries; at most ${mostEntries} are read` }
    }
    if (Array.isArray(value)) for (const [index, item] of value.entries()) enter(item, [...path, index])
    else for (const [key, item] of Object.entries(value)) enter(item, [...path, key])
    if (values > mostValues) {
      return { path: [], message: `has more than ${mostValues} values, too many to be read` }
    }
  }
  return undefined
}
