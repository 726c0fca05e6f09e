/**
 * Names against patterns with wildcards. Patterns and names are others' and come in great numbers: one match takes no more
 * steps than the length of the pattern times that of the name, which no regular expression that backtracks does.
 */

/** Characters of patterns that are compared with one name: of the sources of a COPY, of the rules of a `.dockerignore`. */
export const longestPatterns = 16 * 1024

type Test = (char: string) => boolean
/** null: any number, also none. */
type Segment = ReadonlyArray<Test | null>

/**
 * Whether the items are what the pattern says, or begin so (`isOpen`). If something does not fit, only the last null takes
 * one item more: an earlier one that took more would leave no more to the rest.
 */
const fitsAll = <P, I>(
  pattern: ReadonlyArray<P | null>,
  items: ReadonlyArray<I>,
  fits: (one: P, item: I) => boolean,
  isOpen: boolean
): boolean => {
  let [next, item, last, taken] = [0, 0, -1, 0]
  for (;;) {
    if (next === pattern.length && (isOpen || item === items.length)) return true
    const [wanted, found] = [pattern[next], items[item]]
    if (wanted === null) {
      last = next++
      taken = item
    } else if (wanted !== undefined && found !== undefined && fits(wanted, found)) {
      next++
      item++
    } else {
      if (last === -1 || taken === items.length) return false
      next = last + 1
      item = ++taken
    }
  }
}

const isSegment = (segment: Segment, name: ReadonlyArray<string>) =>
  fitsAll(segment, name, (test, char) => test(char), false)

const one = (char: string): Test | null =>
  char === "*" ? null : char === "?" ? () => true : (other) => other === char

const charsOf = (path: string): ReadonlyArray<ReadonlyArray<string>> =>
  path.split("/").map((segment) => [...segment])

/** With `*` and `?`: answers the part of a path that the pattern means, as a number of its segments, or undefined. */
export const makeBeginning = (pattern: string): ((path: string) => number | undefined) => {
  const wanted = charsOf(pattern).map((segment) => segment.map(one))
  return (path) => {
    const names = charsOf(path)
    return names.length >= wanted.length &&
      wanted.every((segment, index) => isSegment(segment, names[index] ?? []))
      ? wanted.length
      : undefined
  }
}

/** `[a-z]`, `[^a]` and `\x` besides, as Go's filepath.Match has them. A class without an end stands for itself. */
const testsOf = (segment: string): Segment => {
  const chars = [...segment]
  const tests: Array<Test | null> = []
  for (let at = 0; at < chars.length; at++) {
    const char = chars[at] ?? ""
    const next = chars[at + 1]
    const end = char === "[" ? chars.indexOf("]", at + (next === "^" ? 3 : 2)) : -1
    if (char === "\\" && next !== undefined) {
      tests.push((other) => other === next)
      at++
    } else if (end !== -1) {
      tests.push(classOf(chars.slice(at + 1, end)))
      at = end
    } else tests.push(one(char))
  }
  return tests
}

const classOf = (chars: ReadonlyArray<string>): Test => {
  const isNot = chars[0] === "^"
  const ranges: Array<readonly [string, string]> = []
  for (let at = isNot ? 1 : 0; at < chars.length; at++) {
    const from = chars[at] ?? ""
    const to = chars[at + 1] === "-" ? chars[at + 2] : undefined
    ranges.push([from, to ?? from])
    if (to !== undefined) at += 2
  }
  return (char) => ranges.some(([from, to]) => from <= char && char <= to) !== isNot
}

const linesOf = (text: string) =>
  text
    .split("\n")
    .filter((line) => !line.startsWith("#"))
    .map((line) => line.trim())
    .filter((line) => line !== "")

/** Whether there is no more in the text of a `.dockerignore` than is compared. */
export const areFew = (text: string): boolean =>
  linesOf(text).reduce((sum, { length }) => sum + length, 0) <= longestPatterns

/**
 * By the text of a `.dockerignore`: patterns count from its folder, `**` is any number of folders, what lies in a folder
 * that is meant is meant as well, and the last line that means a path decides.
 * (docs.docker.com/build/concepts/context, "dockerignore files")
 */
export const makeIgnores = (text: string): ((path: string) => boolean) => {
  const rules = linesOf(text).flatMap((line) => {
    const isKept = line.startsWith("!")
    const segments = (isKept ? line.slice(1) : line)
      .trim()
      .split("/")
      .filter((segment) => segment !== "" && segment !== ".")
    const pattern = segments.map((segment) => (segment === "**" ? null : testsOf(segment)))
    return pattern.length === 0 ? [] : [{ isKept, pattern }]
  })
  return (path) => {
    const names = charsOf(path)
    return rules.findLast(({ pattern }) => fitsAll(pattern, names, isSegment, true))?.isKept === false
  }
}
