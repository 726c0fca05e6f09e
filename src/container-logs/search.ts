/**
 * Entries of a log that hold a text, in any case of its letters. What is kept are bytes, and what of them are letters is
 * known once they are read, so that they are looked through here. An answer looks through so much at most, and says where
 * the next one goes on: a page may be empty without being the last.
 */
import * as Effect from "effect/Effect"
import { entriesOf, type LogEntry } from "./log-answers.ts"
import type { LogReader, LogRef } from "./log-store.ts"

/** Pieces that are read at once, and what one answer looks through. */
const atOnce = 500
const mostPieces = 10_000
const mostBytes = 8 * 1024 * 1024

/** Undefined: every entry is wanted. */
export const matcherOf = (search: string | undefined): ((entry: Pick<LogEntry, "text">) => boolean) => {
  if (search === undefined) return () => true
  const wanted = search.toLowerCase()
  return ({ text }) => text.toLowerCase().includes(wanted)
}

/** At most `limit` of them from a position on. `next`: where to go on; undefined at the end. */
export const searched = Effect.fnUntraced(function* (
  read: LogReader,
  ref: LogRef,
  from: string,
  limit: number,
  search: string
) {
  const matches = matcherOf(search)
  const items: Array<LogEntry> = []
  let at = from
  let bytes = 0
  for (let looked = 0; ; looked += atOnce) {
    const { pieces } = yield* read(ref, at, atOnce + 1)
    const after = pieces[atOnce]?.position
    for (const [index, entry] of entriesOf(pieces.slice(0, atOnce)).entries()) {
      if (!matches(entry)) continue
      items.push(entry)
      if (items.length === limit) return { items, next: pieces[index + 1]?.position }
    }
    for (const { content } of pieces) bytes += content.length
    if (after === undefined || looked + atOnce >= mostPieces || bytes >= mostBytes)
      return { items, next: after }
    at = after
  }
})
