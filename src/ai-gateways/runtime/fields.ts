/** Parts of JSON that somebody else wrote, for events of streams, of which there are too many for schemas. */

export type Fields = Readonly<Record<string, unknown>>

const isFields = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const none: Fields = {}

/** Empty: it is no object. */
export const fieldsOf = (value: unknown): Fields => (isFields(value) ? value : none)

export const listOf = (value: unknown): ReadonlyArray<unknown> => (Array.isArray(value) ? value : [])

export const textOf = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined)

/** A number of tokens, or a place in a list; undefined: it is none that can be true. */
export const countOf = (value: unknown): number | undefined =>
  typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : undefined

/** Undefined: the text is no JSON object. */
export const parseFields = (text: string): Fields | undefined => {
  try {
    const value: unknown = JSON.parse(text)
    return isFields(value) ? value : undefined
  } catch {
    return undefined
  }
}
