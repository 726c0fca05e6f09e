/** Lists that the API answers in pages. */
import * as Effect from "effect/Effect"

/** What a page is asked for with: the most items that it may have, and where the page before it ended. */
interface PageQuery {
  readonly limit: number
  readonly cursor?: string
}
interface Page<A> {
  readonly items: ReadonlyArray<A>
  /** Null on the last page. */
  readonly nextCursor: string | null
}

/** The most items that the API puts into a page. */
export const pageSize = 100

/**
 * The first `most` items of a list, of as many pages as they need; by default all. `goesOn` looks at the last item of a
 * page: false ends the reading.
 */
export const itemsOf = Effect.fnUntraced(function* <A, E, R>(
  read: (query: PageQuery) => Effect.Effect<Page<A>, E, R>,
  most = Number.POSITIVE_INFINITY,
  goesOn: (last: A) => boolean = () => true
) {
  const items: Array<A> = []
  let query: PageQuery = { limit: Math.min(most, pageSize) }
  for (;;) {
    const page: Page<A> = yield* read(query)
    items.push(...page.items)
    const last = page.items.at(-1)
    if (page.nextCursor === null || items.length >= most || (last !== undefined && !goesOn(last)))
      return items
    query = { limit: Math.min(most - items.length, pageSize), cursor: page.nextCursor }
  }
})
