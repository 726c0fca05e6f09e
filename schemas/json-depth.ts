/**
 * How deep JSON may be nested. Decoding, comparing and writing of values call themselves for every level, so that a
 * deep one exhausts the stack; whether it is too deep is therefore found out first, and without recursion.
 */

/** Levels of lists and maps in one document, wherever it comes in: bodies of requests, manifests, files, stored values. */
export const deepestJson = 64

/** Offset at which the brackets of a JSON text open one level too many; undefined: nowhere. */
export const tooDeepAt = (source: string, levels = deepestJson): number | undefined => {
  let depth = 0
  let inString = false
  for (let at = 0; at < source.length; at++) {
    const code = source.charCodeAt(at)
    if (inString) {
      if (code === backslash) at++
      else if (code === quote) inString = false
    } else if (code === quote) inString = true
    else if (code === openBrace || code === openBracket) {
      if (++depth > levels) return at
    } else if (code === closeBrace || code === closeBracket) depth--
  }
  return undefined
}

/** Whether lists and maps nest deeper than so many levels in a value. */
export const isTooDeep = (value: unknown, levels = deepestJson): boolean => {
  let level: Array<object> = isNested(value) ? [value] : []
  for (let depth = 1; level.length > 0; depth++) {
    if (depth > levels) return true
    const below: Array<object> = []
    for (const one of level) {
      for (const inner of Object.values(one)) if (isNested(inner)) below.push(inner)
    }
    level = below
  }
  return false
}

const isNested = (value: unknown): value is object => typeof value === "object" && value !== null

const [quote, backslash] = [0x22, 0x5c]
const [openBracket, closeBracket, openBrace, closeBrace] = [0x5b, 0x5d, 0x7b, 0x7d]
