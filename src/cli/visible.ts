/**
 * Text that others wrote, made safe for a terminal: what would steer it, or turn the order in which people read, is
 * shown as the escape that names it (`\u001b`, `\u202e`), as in JSON.
 */

const short: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" }
const escaped = (character: string): string =>
  short[character] ?? `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`

/** Control characters (C0 without tab and line feed, DEL, C1), line separators, and the bidirectional controls (UAX #9). */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for.
const steering = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g

/** Lines and tabs stay. */
export const visible = (text: string): string => text.replace(steering, escaped)

/** One line, or one cell: a line feed in it would look like the program's own next line. */
export const visibleLine = (text: string): string => visible(text).replace(/[\t\n]/g, escaped)

/** JSON that no terminal takes for commands: JSON.stringify escapes C0, and leaves DEL and C1. It stays the same JSON. */
export const visibleJson = (text: string): string => text.replace(/[\u007f-\u009f]/g, escaped)
