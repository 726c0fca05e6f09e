/**
 * Reads a manifest from JSON or YAML text, and says of every fault where it is: as a JSON Pointer and as line and
 * column of the source.
 *
 * What a text may cost is bounded before anything is built from it: its size, its depth, no anchors and aliases (a
 * few lines of them unfold to gigabytes), no second document, no merge keys. Faults are counted, and listed up to a
 * limit.
 */
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as SchemaIssue from "effect/SchemaIssue"
import { type Document, isAlias, isMap, isScalar, LineCounter, type Node, parseDocument, visit } from "yaml"
import { Manifest } from "#schemas/manifest.ts"
import { reservedSlugs } from "#schemas/names.ts"
import { referenceFaults } from "./references.ts"

export interface ManifestFault {
  readonly pointer: string
  readonly message: string
  readonly line?: number
  readonly column?: number
}

/** Characters of a text that is read at all. */
export const longestSource = 4 * 1024 * 1024
const deepest = 64
const mostFaults = 100

export type Path = ReadonlyArray<string | number>

export const toPointer = (path: Path): string =>
  path.map((part) => `/${String(part).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("")

/** Where things stand in a source text. Built only when there is something to point at. */
export type Locate = (path: Path) => { readonly line?: number; readonly column?: number }

export interface Parsed {
  readonly manifest: Manifest
  readonly locate: Locate
}

export type ParseResult = Result.Result<Parsed, ReadonlyArray<ManifestFault>>

const decode = Schema.decodeUnknownResult(Manifest)
const format = SchemaIssue.makeFormatterStandardSchemaV1()

/** Parses, validates and checks the references inside of the document. */
export const parseManifest = (source: string): ParseResult => {
  const read = parseSource(source)
  return Result.isFailure(read)
    ? Result.fail(read.failure)
    : checkManifest(read.success.value, read.success.locate)
}

/** Validates a value that was read from a source (or from a part of one). */
export const checkManifest = (value: unknown, locate: Locate): ParseResult => {
  const decoded = decode(value, { errors: "all", onExcessProperty: "error" })
  if (Result.isFailure(decoded)) {
    const faults = format(decoded.failure.issue).issues.map((issue) => {
      const path = (issue.path ?? []).map((part) => {
        const key = typeof part === "object" ? part.key : part
        return typeof key === "symbol" ? String(key) : key
      })
      return { path, message: issue.message + lookAlike(at(value, path)) }
    })
    return Result.fail(limited(faults, locate))
  }
  const manifest = decoded.success
  const faults = [...reservedFaults(manifest), ...referenceFaults(manifest)]
  return faults.length > 0 ? Result.fail(limited(faults, locate)) : Result.succeed({ manifest, locate })
}

export interface PathFault {
  readonly path: Path
  readonly message: string
}

const limited = (faults: ReadonlyArray<PathFault>, locate: Locate): ReadonlyArray<ManifestFault> => {
  const shown = faults
    .slice(0, mostFaults)
    .map(({ path, message }): ManifestFault => ({ pointer: toPointer(path), message, ...locate(path) }))
  const more = faults.length - shown.length
  return more > 0 ? [...shown, { pointer: "", message: `and ${more} more faults` }] : shown
}

const reservedFaults = (manifest: Manifest): ReadonlyArray<PathFault> =>
  (manifest.projects ?? []).flatMap(({ slug }, index) =>
    reservedSlugs.has(slug)
      ? [{ path: ["projects", index, "slug"], message: `"${slug}" is reserved; choose another slug` }]
      : []
  )

/** Names a character that only looks like one that is allowed. */
const lookAlike = (value: unknown): string => {
  if (typeof value !== "string" || value.length > 1_000) return ""
  const strange = [...value].find((char) => char > "~" || char < " ")
  const code = strange?.codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0")
  return code === undefined ? "" : ` (it contains U+${code}, which is not an ASCII character)`
}

const at = (value: unknown, path: Path): unknown =>
  path.reduce<unknown>(
    (inner, part) =>
      typeof inner === "object" && inner !== null
        ? new Map(Object.entries(inner)).get(String(part))
        : undefined,
    value
  )

interface Read {
  readonly value: unknown
  readonly locate: Locate
}

/** Text to value. JSON goes the fast way and is read again as YAML, of which it is a part, when there is a fault to find. */
export const parseSource = (source: string): Result.Result<Read, ReadonlyArray<ManifestFault>> => {
  if (source.length > longestSource) {
    return fault(`has ${source.length} characters; at most ${longestSource} are read`)
  }
  const depth = flowDepth(source)
  if (depth > deepest) return fault(`is nested ${depth} deep; at most ${deepest} levels are read`)
  const start = source.trimStart()[0]
  if (start === "{") {
    try {
      const value: unknown = JSON.parse(source)
      let lazy: Locate | undefined
      return Result.succeed({
        value,
        locate: (path) => {
          lazy ??= Result.match(parseYaml(source), {
            onFailure: () => nowhere,
            onSuccess: (read) => read.locate
          })
          return lazy(path)
        }
      })
    } catch {
      // Flow style YAML starts with a brace as well; what is neither is reported from there.
    }
  }
  return parseYaml(source)
}

const nowhere: Locate = () => ({})
const fault = (message: string, position: { line?: number; column?: number } = {}) =>
  Result.fail([{ pointer: "", message, ...position }])

const parseYaml = (source: string): Result.Result<Read, ReadonlyArray<ManifestFault>> => {
  const lines = new LineCounter()
  const position = (offset: number) => {
    const { line, col } = lines.linePos(offset)
    return line === 0 ? {} : { line, column: col }
  }
  let document: Document.Parsed
  try {
    document = parseDocument(source, {
      lineCounter: lines,
      schema: "core",
      merge: false,
      uniqueKeys: true,
      stringKeys: true,
      prettyErrors: false,
      logLevel: "silent"
    })
  } catch (error) {
    return fault(
      error instanceof RangeError ? "is nested too deep to be read" : "cannot be read as JSON or YAML"
    )
  }
  if (document.errors.length > 0) {
    const faults = document.errors.slice(0, mostFaults).map((error) => ({
      pointer: "",
      message: explain(error.code, error.message),
      ...position(error.pos[0])
    }))
    return Result.fail(faults)
  }
  let alias: Node | undefined
  let tooDeep: Node | undefined
  visit(document, (_, node, ancestors) => {
    if (isAlias(node) || (isNode(node) && "anchor" in node && node.anchor !== undefined)) {
      alias = node as Node
      return visit.BREAK
    }
    if (ancestors.length > 2 * deepest && isNode(node)) {
      tooDeep = node
      return visit.BREAK
    }
    return undefined
  })
  if (alias !== undefined) {
    return fault(
      "uses an anchor or an alias, which manifests do not take; write the value out",
      position(alias.range?.[0] ?? 0)
    )
  }
  if (tooDeep !== undefined) {
    return fault(`is nested deeper than ${deepest} levels`, position(tooDeep.range?.[0] ?? 0))
  }
  return Result.succeed({
    value: document.toJS({ maxAliasCount: 0 }),
    locate: (path) => {
      const offset = offsetOf(document, path)
      return offset === undefined ? {} : position(offset)
    }
  })
}

const isNode = (node: unknown): node is Node => typeof node === "object" && node !== null && "range" in node

/** Where the value at `path` starts, or its key, or the nearest thing around it. */
const offsetOf = (document: Document.Parsed, path: Path): number | undefined => {
  for (let length = path.length; length >= 0; length--) {
    const inner = path.slice(0, length)
    const last = inner.at(-1)
    const parent = length === 0 ? undefined : document.getIn(inner.slice(0, -1), true)
    if (isMap(parent)) {
      const pair = parent.items.find((item) => isScalar(item.key) && String(item.key.value) === String(last))
      const key = pair?.key
      if (isNode(key) && key.range) return key.range[0]
    }
    const node = document.getIn(inner, true)
    if (isNode(node) && node.range) return node.range[0]
  }
  return undefined
}

const explain = (code: string, message: string): string => {
  switch (code) {
    case "DUPLICATE_KEY":
      return "has a key twice"
    case "MULTIPLE_DOCS":
      return "holds more than one document; give one"
    default:
      return `cannot be read as JSON or YAML: ${message.split("\n", 1)[0]}`
  }
}

/** Depth of brackets outside of strings: enough to refuse a text that would exhaust the parser's stack. */
const flowDepth = (source: string): number => {
  let depth = 0
  let most = 0
  for (let i = 0; i < source.length; i++) {
    const char = source.charCodeAt(i)
    if (char === 0x22) {
      for (i++; i < source.length && source.charCodeAt(i) !== 0x22; i++)
        if (source.charCodeAt(i) === 0x5c) i++
    } else if (char === 0x5b || char === 0x7b) most = Math.max(most, ++depth)
    else if (char === 0x5d || char === 0x7d) depth--
  }
  return most
}
