/** What may stand where the cursor is, with what the schema says of it. */
import type { Completion, CompletionResult } from "@codemirror/autocomplete"
import { placeAt } from "./place.ts"
import { type JsonSchema, type KeyOption, keysAt, valuesAt } from "./schema.ts"

/** Longer texts are edited without help, which would hold up typing. */
export const longestHelped = 200_000

/** What a chosen key is followed by: the beginning of what it holds, where a line of its own begins with it. */
const written = ({ name, holds }: KeyOption, indent: string | undefined): string => {
  if (indent === undefined || holds === "value") return `${name}: `
  return holds === "map" ? `${name}:\n${indent}  ` : `${name}:\n${indent}  - `
}

const keyOptions = (
  options: ReadonlyArray<KeyOption>,
  present: ReadonlySet<string>,
  indent: string | undefined,
  hasColon: boolean
): ReadonlyArray<Completion> =>
  options
    .filter(({ name }) => !present.has(name))
    .map((one) => ({
      label: one.name,
      detail: one.required ? `${one.type}, required` : one.type,
      type: "property",
      boost: one.required ? 1 : 0,
      ...(one.description === "" ? {} : { info: one.description }),
      ...(hasColon ? {} : { apply: written(one, indent) })
    }))

export const completionsAt = (
  schema: JsonSchema,
  text: string,
  offset: number,
  asked: boolean
): CompletionResult | null => {
  if (text.length > longestHelped) return null
  const place = placeAt(text, offset)
  if (place === undefined) return null
  const { from, to, document, path } = place
  // What is in quotes is a text of one's own; a list of choices would be in the way.
  if (/["']/.test(text.slice(from, to))) return null
  if (!asked && from === offset) return null
  const items = place.is === "value" ? [] : keysAt(schema, path, document)
  if (items.length > 0) {
    const map = path.reduce<unknown>(
      (value, part) => (typeof value === "object" && value !== null ? Reflect.get(value, part) : undefined),
      document
    )
    const present = new Set(typeof map === "object" && map !== null ? Object.keys(map) : [])
    const line = text.slice(text.lastIndexOf("\n", from - 1) + 1, from)
    const indent = /^[\s-]*$/.test(line) ? " ".repeat(line.length) : undefined
    const options = keyOptions(items, present, indent, /^\s*:/.test(text.slice(to)))
    return options.length === 0 ? null : { from, to, options, validFor: /^[\w.-]*$/ }
  }
  const options = valuesAt(schema, path, document).map(
    ({ value, description }): Completion => ({
      label: value,
      type: "enum",
      ...(description === "" ? {} : { info: description })
    })
  )
  return options.length === 0 ? null : { from, to, options, validFor: /^[\w./-]*$/ }
}
