/** Lists that come in pages. */
import * as Effect from "effect/Effect"
import type { ForgeError } from "../ForgeClient.ts"

/** Page by page until one is not full, or so many were read. */
export const pagesOf = Effect.fnUntraced(function* <A>(
  perPage: number,
  most: number,
  page: (number: number) => Effect.Effect<ReadonlyArray<A>, ForgeError>
) {
  const all: Array<A> = []
  for (let number = 1; number <= most; number++) {
    const items = yield* page(number)
    all.push(...items)
    if (items.length < perPage) break
  }
  return all
})

/** What marks a comment as ours. Forges do not show it. */
export const marked = (marker: string, body: string): string => `<!-- ${marker} -->\n${body}`
export const isMarked = (marker: string, body: string | null): boolean =>
  body?.startsWith(`<!-- ${marker} -->`) === true
