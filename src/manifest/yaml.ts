/**
 * Reads YAML 1.2 (core schema), and knows the line and column of every part of it.
 *
 * The text is taken apart token by token, so that one which is too deep or has too many parts is refused at the place
 * where it becomes so. Anchors, aliases and tags are refused when they are met: a few lines of aliases unfold to
 * gigabytes.
 */
import * as Result from "effect/Result"
import {
  Composer,
  CST,
  type Document,
  isMap,
  isNode,
  isScalar,
  isSeq,
  Lexer,
  LineCounter,
  type Node,
  Parser
} from "yaml"
import { deepestJson } from "#schemas/json-depth.ts"
import {
  type Locate,
  type ManifestFault,
  mostFaults,
  type Path,
  type Position,
  type ReadResult,
  refused,
  toPointer
} from "#src/api/source-location.ts"

/** Words, signs and spaces; taking this many apart needs a second or two. */
const mostTokens = 800_000

export const readYaml = (source: string): ReadResult => {
  const lines = new LineCounter()
  const position = (offset: number): Position => {
    const { line, col } = lines.linePos(offset)
    return { line, column: col }
  }
  lines.addNewLine(0)
  const parser = new Parser(lines.addNewLine)
  const parts: Array<CST.Token> = []
  let tokens = 0
  let broken = 0
  let previous = ""
  for (const token of new Lexer().lex(source)) {
    const offset = parser.offset
    const unsupported = previous === scalarFollows ? undefined : refusedTokens[CST.tokenType(token) ?? ""]
    if (unsupported !== undefined) return refused(unsupported, position(offset))
    for (const part of parser.next(token)) {
      parts.push(part)
      if (part.type === "error") broken += 1
    }
    if (broken >= mostFaults) break
    if (++tokens > mostTokens) {
      return refused(`has more than ${mostTokens} tokens, too many to be read`, position(offset))
    }
    // The document and the value that was just begun are on the stack as well.
    if (parser.stack.length > deepestJson + 2) {
      return refused(`is nested deeper than ${deepestJson} levels`, position(offset))
    }
    previous = token
  }
  parts.push(...parser.end())

  const composer = new Composer({
    schema: "core",
    merge: false,
    // Found below, in time that grows with the number of keys only.
    uniqueKeys: false,
    stringKeys: true,
    prettyErrors: false,
    logLevel: "silent"
  })
  const [document, second] = [...composer.compose(parts, true, source.length)]
  if (document === undefined || (document.contents === null && document.errors.length === 0)) {
    return refused("is empty", position(0))
  }
  const errors = [...document.errors, ...document.warnings]
  if (errors.length > 0) {
    return Result.fail(
      errors.slice(0, mostFaults).map(
        (error): ManifestFault => ({
          pointer: "",
          message: `cannot be read as JSON or YAML: ${ownWords[error.code] ?? error.message.split("\n", 1)[0]}`,
          ...position(error.pos[0])
        })
      )
    )
  }
  if (second !== undefined)
    return refused("holds more than one document; give one", position(second.range[0]))
  const repeated = repeatedKeys(document, position)
  if (repeated.length > 0) return Result.fail(repeated.slice(0, mostFaults))
  return Result.succeed({
    value: document.toJS({ maxAliasCount: 0 }),
    locate: locateIn(document, position)
  })
}

/** For faults whose message in the library quotes the text, which may hold a secret. */
const ownWords: Readonly<Record<string, string>> = {
  UNEXPECTED_TOKEN: "Something else is expected here",
  BAD_DIRECTIVE: "Unknown directive",
  BAD_DQ_ESCAPE: "Unknown escape sequence in double quotes",
  TAG_RESOLVE_FAILED: "Unknown tag",
  BAD_COLLECTION_TYPE: "A tag of another type"
}

/** What the lexer puts before a scalar, whose text may look like anything. */
const scalarFollows = "\x1f"

const refusedTokens: Readonly<Record<string, string>> = {
  anchor: "is an anchor, which manifests do not take; write the value out where it is needed",
  alias: "is an alias, which manifests do not take; write the value out",
  tag: "is a tag, which manifests do not take; the value alone says its type"
}

type ToPosition = (offset: number) => Position

const repeatedKeys = (document: Document.Parsed, position: ToPosition): ReadonlyArray<ManifestFault> => {
  const found: Array<ManifestFault> = []
  const visit = (node: unknown, path: Path) => {
    if (isSeq(node)) {
      for (const [index, item] of node.items.entries()) visit(item, [...path, index])
    } else if (isMap(node)) {
      const seen = new Map<string, number>()
      for (const { key, value } of node.items) {
        const name = keyOf(key)
        const offset = startOf(key) ?? 0
        const first = seen.get(name)
        if (first === undefined) seen.set(name, offset)
        else {
          const message = `stands twice; the first is in line ${position(first).line}`
          found.push({ pointer: toPointer([...path, name]), message, ...position(offset) })
        }
        visit(value, [...path, name])
      }
    }
  }
  visit(document.contents, [])
  return found
}

/** The place of the key of the value at `path`, or of the nearest thing around it. */
const locateIn =
  (document: Document.Parsed, position: ToPosition): Locate =>
  (path) => {
    let node: unknown = document.contents
    let place = startOf(node) ?? 0
    for (const part of path) {
      if (isSeq(node)) {
        node = node.items[Number(part)]
        if (node === undefined) break
        place = startOf(node) ?? place
      } else if (isMap(node)) {
        const pair = node.items.find(({ key }) => keyOf(key) === String(part))
        if (pair === undefined) break
        place = startOf(pair.key) ?? place
        node = pair.value
      } else break
    }
    return position(place)
  }

const keyOf = (key: unknown): string => String(isScalar(key) ? key.value : key)
const startOf = (node: unknown): number | undefined =>
  isNode(node) ? ((node as Node).range?.[0] ?? undefined) : undefined
