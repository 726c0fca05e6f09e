/**
 * Text and JSON from outside as Postgres takes them. It refuses the NUL character in text and JSON, and surrogates
 * without their other half in JSON; a registry, a server or an app may say either. Whatever is told of what others
 * said passes here before it is stored, and is cut to a length that is worth keeping.
 */

/** Characters that are kept of a message. */
const messageLength = 2_000

const clean = (text: string): string =>
  text.includes("\0") || !text.isWellFormed() ? text.replaceAll("\0", "").toWellFormed() : text

/** A message of at most `most` UTF-16 code units, without what the store refuses. */
export const storableText = (text: string, most = messageLength): string => {
  const kept = text.length > most ? `${text.slice(0, most - 1).replace(/[\ud800-\udbff]$/, "")}…` : text
  return clean(kept)
}

/** The same JSON, in full, without what the store refuses in keys and strings. */
export const storableJson = (value: unknown): unknown => {
  if (typeof value === "string") return clean(value)
  if (typeof value !== "object" || value === null) return value
  if (Array.isArray(value)) return value.map(storableJson)
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [clean(key), storableJson(inner)]))
}
