/**
 * More work than there is room for. A person must not wait behind a flood of routine looks, and routine looks must not
 * wait for ever behind people who never stop changing things.
 */
import type { EngineOptions } from "#src/engine/options.ts"
import { Cluster, type ClusterOptions } from "./cluster.ts"
import { specOf } from "./settled.ts"
import { Violation } from "./watcher.ts"

const orgId = "org-a"
/** Ends in the two digits that its slot is made of. */
const nameOf = (n: number): string => `thing${String(n).padStart(2, "0")}`

/** A store full of things that are ready, and processes with little room for slow looks. */
const crowd = (seed: number, engine: EngineOptions, count: number, options: ClusterOptions): Cluster => {
  const cluster = new Cluster(seed, options)
  const { timeline, store, farEnd } = cluster
  for (let i = 1; i <= count; i++) {
    const uid = nameOf(i)
    const spec = { size: 1, needs: null, nature: "plain" }
    store.create({
      orgId,
      uid,
      kind: "Thing",
      projectId: null,
      name: uid,
      parentUid: null,
      spec,
      secrets: []
    })
  }
  for (let i = 0; i < 2; i++)
    cluster.start({ engine: { ...engine, concurrency: 4 }, concurrency: 4, driftIntervalMs: 3_600_000 })
  timeline.runUntil(timeline.now + 60_000, () =>
    [...store.resources.values()].every((row) => row.phase === "ready")
  )
  timeline.runUntil(timeline.now + 1_000)
  farEnd.slownessMs = 1_000
  return cluster
}

/** Somebody wants it otherwise and waits. */
const change = ({ store, watcher }: Cluster, uid: string, size: number): void => {
  store.update(uid, { ...specOf(store.resources.get(uid)!), size })
  watcher.asked(uid)
}

/** After something that made everything due at once, changes are taken up before the rest of it. */
export const resyncFlood = (seed: number, engine: EngineOptions, options: ClusterOptions = {}): void => {
  const cluster = crowd(seed, engine, 150, options)
  const { timeline, store, watcher } = cluster
  const { random } = timeline
  // One turn of the room that is taken, with its second look, and the way to the next.
  cluster.every(
    () => 100,
    Number.POSITIVE_INFINITY,
    () => watcher.check(5_000, Number.POSITIVE_INFINITY)
  )
  const began = timeline.now
  store.makeRoutineDue()
  for (let i = 0; i < 6; i++) {
    timeline.runUntil(timeline.now + random.between(100, 2_500))
    change(cluster, random.pick([...store.resources.keys()])!, 2 + i)
  }
  timeline.runUntil(timeline.now + 60_000)
  const late = [...store.work.values()].find(({ uid }) => watcher.lastTurn(uid) < began)
  if (late !== undefined)
    throw new Violation("nobody waits long", `${late.uid} is not looked at after the flood`)
  cluster.stopAll(10_000)
}

/** People keep all the room busy. What is due for a routine look gets its turn as it grows old. */
export const endlessChanges = (seed: number, engine: EngineOptions, options: ClusterOptions = {}): void => {
  const cluster = crowd(seed, engine, 60, options)
  const { timeline, store, watcher } = cluster
  const { random } = timeline
  const began = timeline.now
  store.makeRoutineDue()
  let size = 2
  // Far more than there is room for; the last twenty are left alone.
  const changeOne = () => change(cluster, nameOf(random.int(1, 40)), ++size)
  for (let i = 0; i < 100; i++) changeOne()
  cluster.every(() => 50, Number.POSITIVE_INFINITY, changeOne)
  timeline.runUntil(timeline.now + 110_000)
  for (let i = 41; i <= 60; i++) {
    const uid = nameOf(i)
    if (watcher.lastTurn(uid) < began)
      throw new Violation("nobody waits long", `the routine look at ${uid} never gets its turn`)
  }
}
