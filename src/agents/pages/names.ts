/** Names that programs gave themselves, made fit to be shown. */

const longest = 60

/**
 * Without characters that nobody sees, or that turn the text after them around (Unicode's controls, formats, private and
 * unassigned ones), and no longer than a line.
 */
export const nameOf = (given: string): string => {
  const visible = given.replaceAll(/\s+/g, " ").replaceAll(/\p{C}/gu, "").trim()
  const letters = [...visible]
  if (letters.length === 0) return "a program without a name"
  return letters.length <= longest ? visible : `${letters.slice(0, longest).join("")}…`
}
