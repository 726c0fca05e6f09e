/** What a resource waits for, and what that one waits for, down to where the cause is. */

interface Waiting {
  readonly address: string
  readonly waitingOn: string | null
}

/** One of them; without a resource there is none of that address. */
export interface Awaited<R> {
  readonly address: string
  readonly resource: R | undefined
}

/** The deepest cause is the last. A circle ends where it closes. */
export const awaitedBy = <R extends Waiting>(
  resource: R,
  find: (address: string) => R | undefined
): ReadonlyArray<Awaited<R>> => {
  const chain: Array<Awaited<R>> = []
  const seen = new Set([resource.address])
  for (let next = resource.waitingOn; next !== null && !seen.has(next); ) {
    seen.add(next)
    const found = find(next)
    chain.push({ address: next, resource: found })
    next = found?.waitingOn ?? null
  }
  return chain
}
