/** The graph of what names what: every node with the nodes that it names. Nodes that are only named name nothing. */
export type ReferenceGraph = ReadonlyMap<string, ReadonlyArray<string>>

/**
 * For every node how many steps its longest way through the graph has: what it names has fewer. Nodes from which a way
 * leads into a circle are absent. Takes time in proportion to the graph, and no stack.
 */
export const depthsOf = (graph: ReferenceGraph): ReadonlyMap<string, number> => {
  const namedBy = new Map<string, Array<string>>()
  const open = new Map<string, number>()
  for (const [node, targets] of graph) {
    open.set(node, targets.length)
    for (const target of targets) {
      if (!graph.has(target)) open.set(target, 0)
      const users = namedBy.get(target)
      if (users === undefined) namedBy.set(target, [node])
      else users.push(node)
    }
  }
  const depths = new Map<string, number>()
  let level = [...open].flatMap(([node, count]) => (count === 0 ? [node] : []))
  for (let depth = 0; level.length > 0; depth++) {
    const next: Array<string> = []
    for (const node of level) {
      depths.set(node, depth)
      for (const user of namedBy.get(node) ?? []) {
        const left = (open.get(user) ?? 0) - 1
        open.set(user, left)
        if (left === 0) next.push(user)
      }
    }
    level = next
  }
  return depths
}

/** The nodes of circles, and those on a way from one circle to another, in the order of the graph. */
export const circularIn = (graph: ReferenceGraph): ReadonlyArray<string> => {
  const ends = depthsOf(graph)
  const endless = new Map(
    [...graph].flatMap(([node, targets]) =>
      ends.has(node) ? [] : [[node, targets.filter((target) => !ends.has(target))] as const]
    )
  )
  const reversed = new Map([...endless.keys()].map((node): [string, Array<string>] => [node, []]))
  for (const [node, targets] of endless) for (const target of targets) reversed.get(target)?.push(node)
  // What no circle leads to only leads into one.
  const outside = depthsOf(reversed)
  return [...endless.keys()].filter((node) => !outside.has(node))
}
