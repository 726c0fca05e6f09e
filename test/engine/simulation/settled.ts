/** Whether everything is as people asked for it, in the store and at the far end. */
import type { ResourceRow } from "../memory-rows.ts"
import type { Cluster } from "./cluster.ts"
import type { ThingSpec } from "./far-end.ts"

/** The specification of a thing; the simulation alone writes it. */
export const specOf = (row: ResourceRow): ThingSpec => row.spec as unknown as ThingSpec

/** Nothing keeps it from being ready. */
export const canBeReady = ({ store }: Cluster, row: ResourceRow): boolean => {
  if (row.deleting || store.pausedNow(row) !== null) return false
  if (row.kind === "Box") return true
  const { nature, needs } = specOf(row)
  if (nature !== "plain") return false
  if (needs === null) return true
  const needed = store.resources.get(needs)
  return needed !== undefined && !needed.deleting && needed.phase === "ready"
}

/** The first thing that is not as it should be, in words; `retries` are those that must have been carried out. */
export const unsettled = (cluster: Cluster, retries: ReadonlyMap<string, string>): string | undefined => {
  const { store, farEnd } = cluster
  for (const row of store.resources.values()) {
    const retry = retries.get(row.uid)
    if (retry !== undefined && store.work.get(row.uid)?.handledRetry !== retry)
      return `${row.uid} was not looked at again (${retry})`
    const trouble = row.deleting ? stillThere(cluster, row) : wrongIn(cluster, row)
    if (trouble !== undefined) return `${row.uid} ${trouble}`
  }
  for (const uid of farEnd.things.keys()) {
    if (!store.resources.has(uid) && farEnd.find(uid) !== undefined) return `${uid} was left behind`
  }
  return undefined
}

const stillThere = (cluster: Cluster, row: ResourceRow): string | undefined =>
  holdsPaused(cluster, row) ? undefined : `is ${row.phase} and still there`

/** It, or something in it, may not be touched. */
const holdsPaused = (cluster: Cluster, row: ResourceRow): boolean =>
  cluster.store.pausedNow(row) !== null ||
  [...cluster.store.resources.values()].some(
    (child) => child.parentUid === row.uid && holdsPaused(cluster, child)
  )

const wrongIn = (cluster: Cluster, row: ResourceRow): string | undefined => {
  const { store, farEnd } = cluster
  const { phase } = row
  if (store.pausedNow(row) !== null) return undefined
  const size = farEnd.find(row.uid)?.size
  if (row.kind === "Thing") {
    const spec = specOf(row)
    // Nobody asks the far end for what is there already, be it impossible to make.
    if (spec.nature === "impossible")
      return phase === "failed" || size === spec.size ? undefined : `is ${phase} and cannot be made`
    if (spec.nature === "hopeless") return phase === "ready" ? "is called ready" : undefined
    if (!canBeReady(cluster, row))
      return phase === "waiting" || phase === "ready" ? undefined : `is ${phase} and has to wait`
    if (size !== spec.size) return `is ${size} out there and should be ${spec.size}`
    if (phase === "ready" && JSON.stringify(row.status) !== JSON.stringify({ size }))
      return "is reported otherwise"
  }
  return phase === "ready" && row.observedGeneration === row.generation
    ? undefined
    : `is ${phase} at ${row.observedGeneration} of ${row.generation}`
}
