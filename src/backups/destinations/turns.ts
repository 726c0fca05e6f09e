/**
 * Who is next among destinations: each place goes to the one that holds the fewest, in turn where they are equal. One
 * with thousands of copies waiting delays the first copy of another by a few at most.
 */
export interface Waiting {
  readonly key: string
  /** Copies on their way. */
  readonly held: number
  /** How many more it may have. */
  readonly room: number
}

/** How many of `most` places each gets, by key, in the order of their turns; the turn begins after the key `last`. */
export const shareOut = (
  waiting: ReadonlyArray<Waiting>,
  most: number,
  last: string
): ReadonlyMap<string, number> => {
  const line = [...waiting].sort(
    (a, b) => Number(a.key <= last) - Number(b.key <= last) || (a.key < b.key ? -1 : 1)
  )
  const given = new Map<string, number>()
  for (let place = 0; place < most; place++) {
    let next: Waiting | undefined
    let fewest = Number.POSITIVE_INFINITY
    for (const one of line) {
      const gets = given.get(one.key) ?? 0
      if (gets >= one.room || one.held + gets >= fewest) continue
      next = one
      fewest = one.held + gets
    }
    if (next === undefined) break
    given.set(next.key, (given.get(next.key) ?? 0) + 1)
  }
  return given
}
