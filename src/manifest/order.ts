/**
 * In which order a plan goes: what others need is created first, and deleted last.
 *
 * The order comes from what each kind says of itself, where it lives and what it refers to; kinds that do not need each
 * other keep the order of the list. Within a kind it comes from what the resources refer to.
 */
import type { Kind, Scope } from "#schemas/kind.ts"

const containerOf: Readonly<Record<Scope, string | undefined>> = {
  organization: undefined,
  project: "Project",
  environment: "Environment"
}

/** The place of each kind in the order of creation. */
export const creationOrder = (kinds: ReadonlyArray<Kind>): ReadonlyMap<string, number> => {
  const byName = new Map(kinds.map((kind): [string, Kind] => [kind.name, kind]))
  const order = new Map<string, number>()
  const entered = new Set<string>()
  const place = (kind: Kind) => {
    if (entered.has(kind.name)) return
    entered.add(kind.name)
    for (const name of [containerOf[kind.scope], ...kind.references.map((reference) => reference.kind)]) {
      const needed = name === undefined ? undefined : byName.get(name)
      if (needed !== undefined) place(needed)
    }
    order.set(kind.name, order.size)
  }
  for (const kind of kinds) place(kind)
  return order
}

/**
 * Sorts in place: creations and changes in the order of creation, then deletions in the reverse of it. `depths` says by
 * address how many references lie below a resource.
 */
export const inOrder = <
  T extends { readonly action: string; readonly kind: string; readonly address: string }
>(
  items: Array<T>,
  order: ReadonlyMap<string, number>,
  depths: ReadonlyMap<string, number>
): ReadonlyArray<T> => {
  const rank = ({ action, kind }: T) => {
    const place = order.get(kind) ?? order.size
    return action === "delete" ? 2 * order.size - place : place
  }
  const depth = ({ action, address }: T) => (action === "delete" ? -1 : 1) * (depths.get(address) ?? 0)
  return items.sort(
    (a, b) =>
      rank(a) - rank(b) || depth(a) - depth(b) || (a.address < b.address ? -1 : a.address > b.address ? 1 : 0)
  )
}
