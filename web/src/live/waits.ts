/** What a resource waits for, and what that waits for in turn, down to the cause. */

export interface Waiting {
  readonly uid: string
  readonly waitingOn: { readonly uid: string; readonly kind: string; readonly name: string } | null
}

/** The nearest first. A circle, which the engine may pass through for a moment, ends where it would begin anew. */
export const waitsOf = (
  resource: Waiting,
  byUid: ReadonlyMap<string, Waiting>
): ReadonlyArray<NonNullable<Waiting["waitingOn"]>> => {
  const found = new Map<string, NonNullable<Waiting["waitingOn"]>>()
  for (let next = resource.waitingOn; next !== null; next = byUid.get(next.uid)?.waitingOn ?? null) {
    if (next.uid === resource.uid || found.has(next.uid)) break
    found.set(next.uid, next)
  }
  return [...found.values()]
}
