/**
 * Text that people choose and other people read: names, and reasons in a sentence. It stands in terminals, mails and
 * lists beside the words of others, so it is one line that shows what it holds and nothing else.
 */
import * as Schema from "effect/Schema"

/** Marks that change the direction of the text after them: what is read is then not what is stored. */
const directional = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu
const control = /[\p{Cc}\u2028\u2029]/gu

/** What is wrong with it as a line of text; undefined: nothing. */
export const lineFault = (text: string): string | undefined => {
  if (!text.isWellFormed()) return "must be Unicode text without lone surrogates"
  const [broken] = text.match(control) ?? []
  if (broken !== undefined) return `must not contain control characters (it has ${codePoint(broken)})`
  const [turned] = text.match(directional) ?? []
  if (turned !== undefined)
    return `must not contain characters that change the direction of text (it has ${codePoint(turned)})`
  return text.trim() === text ? undefined : "must not begin or end with blanks"
}

const codePoint = (char: string) => `U+${char.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`

/** Text of 1 to `longest` characters; one outside of the basic plane is one character. */
const textOf = (longest: number) =>
  Schema.String.check(
    Schema.isPattern(new RegExp(`^[\\s\\S]{1,${longest}}$`, "u"), { expected: `1 to ${longest} characters` })
  )

/** One line of 1 to `longest` characters. */
export const lineOf = (longest: number) =>
  textOf(longest).check(Schema.makeFilter((text: string) => lineFault(text)))

/** What an organization, a project, a key or a person is called. */
export const DisplayName = lineOf(100)

/** A {@link DisplayName} as it is stored: names that were taken before there were rules for lines stay readable. */
export const StoredName = textOf(100)

/** The nearest such name, for text that comes from elsewhere and cannot be refused; perhaps empty. */
export const toDisplayName = (text: string): string =>
  text
    .toWellFormed()
    .replaceAll(control, " ")
    .replaceAll(directional, "")
    .trim()
    .slice(0, 100)
    .toWellFormed()
    .trim()
