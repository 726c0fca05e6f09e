/**
 * Reading a request's text up to a valid manifest, as one step that can be taken in any thread: what goes in and what
 * comes out are plain values.
 */
import * as Result from "effect/Result"
import type { Manifest } from "#schemas/manifest.ts"
import { positionsOf } from "#src/api/json.ts"
import { syntaxFault } from "#src/api/json-syntax.ts"
import { type Locate, type ManifestFault, type Position, toPath } from "#src/api/source-location.ts"
import { checkManifest, parseSource } from "./parse.ts"

export interface Source {
  readonly text: string
  /** YAML takes JSON as well; JSON takes nothing else. */
  readonly language: "json" | "yaml"
  /** Key of the request under which the document is; undefined: the text is the document. */
  readonly inside: string | undefined
}

export type Reading =
  /** It is not in the language that it says it is in. */
  | { readonly _tag: "Malformed"; readonly message: string }
  /** The text cannot be taken for a value. */
  | { readonly _tag: "Unreadable"; readonly faults: ReadonlyArray<ManifestFault> }
  | {
      readonly _tag: "Read"
      /** What is around the document, which is left out. */
      readonly envelope: unknown
      /** Undefined: there is none. */
      readonly document: Manifest | undefined
      /** What is wrong with the document. Pointers start at it. */
      readonly faults: ReadonlyArray<ManifestFault>
    }

export const read = ({ text, language, inside }: Source): Reading => {
  if (language === "json") {
    const wrong = isJson(text) ? undefined : syntaxFault(text)
    if (wrong !== undefined) {
      const { line, column } = positionsOf(text)(wrong.offset)
      return { _tag: "Malformed", message: `line ${line}, column ${column}: ${wrong.message}` }
    }
  }
  const source = parseSource(text)
  if (Result.isFailure(source)) return { _tag: "Unreadable", faults: source.failure }
  const { value, locate } = source.success
  if (inside === undefined) return { _tag: "Read", envelope: null, ...checked(value, locate) }
  if (typeof value !== "object" || value === null || !Object.hasOwn(value, inside)) {
    return { _tag: "Read", envelope: value, document: undefined, faults: [] }
  }
  const parts = new Map<string, unknown>(Object.entries(value))
  const document = parts.get(inside)
  const envelope = { ...value, [inside]: null }
  return { _tag: "Read", envelope, ...checked(document, (path) => locate([inside, ...path])) }
}

const checked = (value: unknown, locate: Locate) => {
  const result = checkManifest(value, locate)
  return Result.isFailure(result)
    ? { document: undefined, faults: result.failure }
    : { document: result.success.manifest, faults: [] }
}

const isJson = (text: string): boolean => {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

/** Where the parts of the document stand that `pointers` name. */
export const locateAll = (
  { text, inside }: Source,
  pointers: ReadonlyArray<string>
): ReadonlyArray<Position> => {
  const source = parseSource(text)
  if (Result.isFailure(source)) return []
  const root = inside === undefined ? [] : [inside]
  return pointers.map((pointer) => source.success.locate([...root, ...toPath(pointer)]))
}
