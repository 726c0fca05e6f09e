/**
 * Reads a manifest from JSON or YAML text, and says of every fault where it is: as a JSON Pointer and as line and
 * column of the source.
 */
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as SchemaAST from "effect/SchemaAST"
import * as SchemaIssue from "effect/SchemaIssue"
import { allowedValues } from "#schemas/allowed-values.ts"
import { Manifest } from "#schemas/manifest.ts"
import { looksLikeUid, reservedSlugs } from "#schemas/names.ts"
import {
  type Locate,
  listed,
  type ManifestFault,
  mostFaults,
  type Path,
  type PathFault
} from "#src/api/source-location.ts"
import { referenceFaults } from "./references.ts"
import { parseSource } from "./source.ts"

export type { Locate, ManifestFault, Path } from "#src/api/source-location.ts"
export { parseSource } from "./source.ts"

export interface Parsed {
  readonly manifest: Manifest
  readonly locate: Locate
}

export type ParseResult = Result.Result<Parsed, ReadonlyArray<ManifestFault>>

const decode = Schema.decodeUnknownResult(Manifest)

/** Parses, validates and checks the references inside of the document. */
export const parseManifest = (source: string): ParseResult => {
  const read = parseSource(source)
  return Result.isFailure(read)
    ? Result.fail(read.failure)
    : checkManifest(read.success.value, read.success.locate)
}

/** Validates a value that was read from a source (or from a part of one). */
export const checkManifest = (value: unknown, locate: Locate): ParseResult => {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return Result.fail(
      listed([{ path: [], message: 'must be a map with the keys "version" and "organization"' }], locate)
    )
  }
  const decoded = decode(value, { errors: "all", onExcessProperty: "error" })
  if (Result.isFailure(decoded)) {
    const { faults, all } = schemaFaults(value, decoded.failure.issue)
    return Result.fail(listed(faults, locate, all))
  }
  const manifest = decoded.success
  const faults = [...textFaults(value, []), ...reservedFaults(manifest), ...referenceFaults(manifest)]
  return faults.length > 0 ? Result.fail(listed(faults, locate)) : Result.succeed({ manifest, locate })
}

const reservedFaults = (manifest: Manifest): ReadonlyArray<PathFault> =>
  (manifest.projects ?? []).flatMap(({ slug }, index) =>
    reservedSlugs.has(slug) || looksLikeUid(slug)
      ? [{ path: ["projects", index, "slug"], message: `"${slug}" is reserved; choose another slug` }]
      : []
  )

/** Text that would not come back as it was given: neither Postgres nor a process's environment holds it. */
function* textFaults(value: unknown, path: Path): Generator<PathFault> {
  if (typeof value === "string") {
    if (value.includes("\0")) yield { path, message: "must not contain the NUL character" }
    else if (!value.isWellFormed()) yield { path, message: "must be Unicode text without lone surrogates" }
  } else if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) yield* textFaults(item, [...path, index])
  } else if (typeof value === "object" && value !== null) {
    for (const [key, inner] of Object.entries(value)) yield* textFaults(inner, [...path, key])
  }
}

const format = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => {
    switch (issue._tag) {
      case "MissingKey":
        return "is required"
      case "UnexpectedKey": {
        const pattern = keyPattern(issue.ast)
        return pattern === undefined
          ? "is not a key that is known here"
          : `is no name for a key: expected ${pattern}`
      }
      default:
        return SchemaIssue.defaultLeafHook(issue)
    }
  }
})

/** What keys must look like in a map whose keys users choose. */
const keyPattern = (ast: SchemaAST.AST): string | undefined => {
  const checks = SchemaAST.isObjects(ast) ? ast.indexSignatures[0]?.parameter.checks : undefined
  const expected = checks?.[0]?.annotations?.expected
  return typeof expected === "string" ? expected : undefined
}

/** Words cost more than counting: only faults that are listed get some. */
const schemaFaults = (value: unknown, root: SchemaIssue.Issue) => {
  const faults: Array<PathFault> = []
  let all = 0
  const visit = (issue: SchemaIssue.Issue, path: Path): void => {
    switch (issue._tag) {
      case "Composite":
        for (const inner of issue.issues) visit(inner, path)
        return
      case "Encoding":
        visit(issue.issue, path)
        return
      case "Pointer":
        visit(issue.issue, [...path, ...issue.path.map(toPart)])
        return
      default: {
        all += 1
        if (faults.length >= mostFaults) return
        const { issues } = format(issue)
        const message = allowedValues(issue) ?? [...new Set(issues.map((one) => one.message))].join(", or ")
        faults.push({ path, message: message + lookAlike(at(value, path), path.at(-1)) })
      }
    }
  }
  visit(root, [])
  return { faults, all }
}

const toPart = (key: PropertyKey) => (typeof key === "symbol" ? String(key) : key)

/** Names a character that only looks like one that is allowed, in a value or in its key. */
const lookAlike = (...texts: ReadonlyArray<unknown>): string => {
  for (const text of texts) {
    if (typeof text !== "string" || text.length > 1_000) continue
    const strange = [...text].find((char) => char > "~" || char < " ")
    const code = strange?.codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0")
    if (code !== undefined) return ` (it contains U+${code}, which is not a printable ASCII character)`
  }
  return ""
}

const at = (root: unknown, path: Path): unknown =>
  path.reduce<unknown>(
    (inner, part) =>
      typeof inner === "object" && inner !== null
        ? Object.getOwnPropertyDescriptor(inner, part)?.value
        : undefined,
    root
  )
