/**
 * Reads JSON, and knows the line and column of every part of it.
 *
 * The value comes from the runtime's own parser. What that does not tell (keys that stand twice, where things stand)
 * is found by walking over the text again, which by then is known to be well-formed.
 */
import * as Result from "effect/Result"
import { deepestJson, tooDeepAt } from "#schemas/json-depth.ts"
import { type Locate, mostFaults, type Path, type ReadResult, refused, toPointer } from "./source-location.ts"

/** Undefined: the text is not JSON. */
export const readJson = (source: string): ReadResult | undefined => {
  const first = source.charCodeAt(firstToken(source, 0))
  if (first !== openBrace && first !== openBracket) return undefined
  const text: Text = { source, lines: undefined, inside: new Map() }
  const steep = tooDeepAt(source)
  if (steep !== undefined) {
    return refused(`is nested deeper than ${deepestJson} levels`, positionOf(text, steep))
  }
  let value: unknown
  try {
    value = JSON.parse(source)
  } catch {
    return undefined
  }
  const repeated = repeatedKeys(source)
  if (repeated.length > 0) {
    return Result.fail(
      repeated.slice(0, mostFaults).map(({ path, offset, first }) => ({
        pointer: toPointer(path),
        message: `stands twice; the first is in line ${positionOf(text, first).line}`,
        ...positionOf(text, offset)
      }))
    )
  }
  return Result.succeed({ value, locate: locateIn(text) })
}

/** Line and column of an offset, in any text. */
export const positionsOf = (source: string) => {
  const text: Text = { source, lines: undefined, inside: new Map() }
  return (offset: number) => positionOf(text, offset)
}

/** Offsets of the parts of one list or map: of the key (of the value in a list), and of the value. */
type Parts = ReadonlyMap<string, { readonly key: number; readonly value: number }>

interface Text {
  readonly source: string
  /** Offsets at which lines start. */
  lines: ReadonlyArray<number> | undefined
  /** Lists and maps that were asked for, by offset: asking for many parts of one walks over it once. */
  readonly inside: Map<number, Parts>
}

/** The place of the value at `path`, or of the nearest thing around it. */
const locateIn =
  (text: Text): Locate =>
  (path) => {
    let place = firstToken(text.source, 0)
    let value = place
    for (const part of path) {
      const found = partsAt(text, value).get(String(part))
      if (found === undefined) break
      place = found.key
      value = found.value
    }
    return positionOf(text, place)
  }

const partsAt = (text: Text, offset: number): Parts => {
  const known = text.inside.get(offset)
  if (known !== undefined) return known
  const parts = new Map<string, { readonly key: number; readonly value: number }>()
  for (const part of partsOf(text.source, offset)) {
    parts.set(part.name, { key: part.key, value: part.value })
  }
  text.inside.set(offset, parts)
  return parts
}

const positionOf = (text: Text, offset: number): { readonly line: number; readonly column: number } => {
  text.lines ??= lineStarts(text.source)
  let [low, high] = [0, text.lines.length - 1]
  while (low < high) {
    const middle = (low + high + 1) >> 1
    if ((text.lines[middle] ?? 0) <= offset) low = middle
    else high = middle - 1
  }
  return { line: low + 1, column: offset - (text.lines[low] ?? 0) + 1 }
}

const lineStarts = (source: string): ReadonlyArray<number> => {
  const starts = [0]
  for (let at = source.indexOf("\n"); at !== -1; at = source.indexOf("\n", at + 1)) starts.push(at + 1)
  return starts
}

interface Repeated {
  readonly path: Path
  readonly offset: number
  readonly first: number
}

const repeatedKeys = (source: string): ReadonlyArray<Repeated> => {
  const found: Array<Repeated> = []
  const visit = (offset: number, path: Path) => {
    const isMap = source.charCodeAt(offset) === openBrace
    const seen = new Map<string, number>()
    for (const { name, key, value } of partsOf(source, offset)) {
      const inner = [...path, isMap ? name : Number(name)]
      const first = isMap ? seen.get(name) : undefined
      if (first === undefined) seen.set(name, key)
      else found.push({ path: inner, offset: key, first })
      const opening = source.charCodeAt(value)
      if (opening === openBrace || opening === openBracket) visit(value, inner)
    }
  }
  visit(firstToken(source, 0), [])
  return found
}

/** The parts of the list or map at `offset` of well-formed JSON; nothing for other values. */
function* partsOf(source: string, offset: number) {
  const opening = source.charCodeAt(offset)
  if (opening !== openBrace && opening !== openBracket) return
  let at = firstToken(source, offset + 1)
  for (
    let index = 0;
    source.charCodeAt(at) !== closeBrace && source.charCodeAt(at) !== closeBracket;
    index++
  ) {
    const key = at
    let name = String(index)
    if (opening === openBrace) {
      const end = afterString(source, at)
      name = textOf(source.slice(at, end))
      at = firstToken(source, firstToken(source, end) + 1)
    }
    yield { name, key, value: at }
    at = firstToken(source, afterValue(source, at))
    if (source.charCodeAt(at) === comma) at = firstToken(source, at + 1)
  }
}

const textOf = (literal: string): string =>
  literal.includes("\\") ? String(JSON.parse(literal)) : literal.slice(1, -1)

const [quote, backslash, comma] = [0x22, 0x5c, 0x2c]
const [openBracket, closeBracket, openBrace, closeBrace] = [0x5b, 0x5d, 0x7b, 0x7d]
const isSpace = (code: number) => code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09

const firstToken = (source: string, from: number): number => {
  let at = from
  while (isSpace(source.charCodeAt(at))) at++
  return at
}

const afterString = (source: string, opening: number): number => {
  let at = opening + 1
  while (at < source.length && source.charCodeAt(at) !== quote) {
    at += source.charCodeAt(at) === backslash ? 2 : 1
  }
  return at + 1
}

const afterValue = (source: string, from: number): number => {
  let depth = 0
  let at = from
  do {
    const code = source.charCodeAt(at)
    if (code === quote) at = afterString(source, at)
    else {
      if (code === openBrace || code === openBracket) depth++
      else if (code === closeBrace || code === closeBracket) depth--
      at++
    }
    const next = source.charCodeAt(at)
    // A number or a word at the outermost level ends where something else begins.
    if (depth === 0 && (isSpace(next) || next === comma || next === closeBrace || next === closeBracket))
      break
  } while (at < source.length)
  return at
}
