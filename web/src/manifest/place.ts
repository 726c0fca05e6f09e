/**
 * Where in a manifest the cursor is, in a text that need not be whole. What is being typed there is replaced by a mark
 * that YAML takes as a key or as a value; where the mark is found is the place.
 */
import { type Document, isMap, isScalar, isSeq, parseDocument } from "yaml"
import type { Path } from "./schema.ts"

export interface Place {
  /** What is typed is a key of the map at `path`, or the value there. */
  readonly is: "key" | "value"
  readonly path: Path
  /** What is written so far, without what is being typed. */
  readonly document: unknown
  /** The part of the text that is being typed. */
  readonly from: number
  readonly to: number
}

const mark = "\u{e000}"

/** A document of which a part can be read is read. */
const read = (text: string): Document | undefined => {
  try {
    return parseDocument(text, { schema: "core", logLevel: "silent", prettyErrors: false, uniqueKeys: false })
  } catch {
    return undefined
  }
}

const markedIn = (node: unknown, path: Path): Pick<Place, "is" | "path"> | undefined => {
  if (isScalar(node)) return node.value === mark ? { is: "value", path } : undefined
  if (isSeq(node))
    for (const [index, item] of node.items.entries()) {
      const found = markedIn(item, [...path, index])
      if (found !== undefined) return found
    }
  if (isMap(node))
    for (const { key, value } of node.items) {
      const name = isScalar(key) ? String(key.value) : ""
      if (name === mark) return { is: "key", path }
      const found = markedIn(value, [...path, name])
      if (found !== undefined) return found
    }
  return undefined
}

/** Without aliases, of which a few lines may unfold to gigabytes. */
const plain = (document: Document): unknown => {
  try {
    return document.toJS({ maxAliasCount: 0 })
  } catch {
    return undefined
  }
}

const wordBefore = /["']?[\p{L}\p{N}_./$-]*$/u
const wordAfter = /^[\p{L}\p{N}_./$-]*["']?/u

export const placeAt = (text: string, offset: number): Place | undefined => {
  const start = text.lastIndexOf("\n", offset - 1) + 1
  const end = text.indexOf("\n", offset)
  const before = text.slice(start, offset)
  const word = wordBefore.exec(before)?.[0] ?? ""
  const after = wordAfter.exec(text.slice(offset, end === -1 ? text.length : end))?.[0] ?? ""
  const from = offset - word.length
  const to = offset + after.length
  const lead = before.slice(0, before.length - word.length)
  if (/(^|\s)#/.test(lead)) return undefined
  const rest = text.slice(to)
  const hasColon = /^\s*:/.test(rest)
  const asValue = { text: mark, wanted: "value" }
  const asKey = { text: hasColon ? mark : `${mark}: `, wanted: "key" }
  // After a colon only a value can stand; elsewhere what YAML takes as a key may be one, or a value of a list.
  for (const one of /:\s+$/.test(lead) ? [asValue] : [asKey, asValue]) {
    const document = read(text.slice(0, from) + one.text + rest)
    const found = document === undefined ? undefined : markedIn(document.contents, [])
    if (document !== undefined && found?.is === one.wanted)
      return { ...found, document: plain(document), from, to }
  }
  return undefined
}

/** The path of the key or value that stands at this offset. */
export const pathAt = (text: string, offset: number): Place | undefined => {
  const place = placeAt(text, offset)
  if (place?.is !== "key") return place
  const name = text.slice(place.from, place.to).replaceAll(/["']/g, "")
  return { ...place, path: [...place.path, name] }
}
