/**
 * What is wrong with a manifest, at its place in the text. The control plane's own reader says it, so that what is
 * underlined is what a plan would be refused for, in the same words.
 */
import * as Result from "effect/Result"
import { parseManifest } from "#src/manifest/parse.ts"
import { longestHelped } from "./completion.ts"

export interface Fault {
  readonly from: number
  readonly to: number
  readonly message: string
}

/** The offset of each line's first character. */
const lineStarts = (text: string): ReadonlyArray<number> => {
  const starts = [0]
  for (let at = text.indexOf("\n"); at !== -1; at = text.indexOf("\n", at + 1)) starts.push(at + 1)
  return starts
}

export const faultsOf = (text: string): ReadonlyArray<Fault> => {
  if (text.trim() === "" || text.length > longestHelped) return []
  const parsed = parseManifest(text)
  if (Result.isSuccess(parsed)) return []
  const starts = lineStarts(text)
  return parsed.failure.map(({ pointer, message, line = 1, column = 1 }) => {
    const start = starts[line - 1] ?? text.length
    const end = (starts[line] ?? text.length + 1) - 1
    const from = Math.min(start + column - 1, end)
    const word = /^["']?[^\s:,[\]{}]+/.exec(text.slice(from, end))?.[0] ?? ""
    const subject = pointer === "" ? "The manifest" : pointer
    return {
      from,
      to: Math.min(from + Math.max(word.length, 1), text.length),
      message: `${subject} ${message}`
    }
  })
}
