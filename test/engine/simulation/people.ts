/** People who change their minds: they create, change, delete, retry, pause and resume, at random. */
import type { PauseTarget } from "#src/store/Interventions.ts"
import type { ResourceRow } from "../memory-rows.ts"
import type { Cluster } from "./cluster.ts"
import type { ThingSpec } from "./far-end.ts"

const orgs = ["org-a", "org-b"]

export class People {
  readonly #cluster: Cluster
  #made = 0
  /** The newest "retry now" of each resource. */
  readonly retries = new Map<string, string>()

  constructor(cluster: Cluster) {
    this.#cluster = cluster
    for (const org of orgs) this.#createBox(org, undefined)
  }

  /** One thing that somebody does. */
  act(): void {
    const { timeline, watcher } = this.#cluster
    const rows = this.#rows()
    const row = timeline.random.pick(rows)
    if (row === undefined) {
      this.#createBox(orgs[0]!, undefined)
      return
    }
    watcher.counts.actions++
    const crowded = rows.length > 18
    timeline.random.weighted<(row: ResourceRow) => void>([
      [crowded ? 0 : 3, (one) => this.#createBox(one.orgId, timeline.random.chance(0.6) ? one : undefined)],
      [crowded ? 1 : 12, () => this.#createThing()],
      [10, () => this.#change()],
      [3, (one) => this.#delete(one)],
      [3, (one) => this.#retry(one)],
      [2, (one) => this.#reconcileNow(one)],
      [2, (one) => this.#pause(one)],
      [3, () => this.#resume()]
    ])(row)
  }

  #rows(kind?: string): ReadonlyArray<ResourceRow> {
    return [...this.#cluster.store.resources.values()].filter(
      (row) => kind === undefined || row.kind === kind
    )
  }

  #create(
    kind: string,
    orgId: string,
    parent: ResourceRow | undefined,
    spec: (uid: string) => ThingSpec | object
  ) {
    // Ends in the two digits that its slot is made of.
    const uid = `${kind.toLowerCase()}${String(++this.#made).padStart(2, "0")}`
    const wanted = spec(uid)
    const created = this.#cluster.store.create({
      orgId,
      uid,
      kind,
      projectId: parent === undefined ? null : (parent.projectId ?? parent.uid),
      name: uid,
      parentUid: parent?.uid ?? null,
      spec: { ...wanted },
      secrets: []
    })
    if (!created) return
    this.#cluster.watcher.asked(uid)
    this.#cluster.watcher.note(`${uid} is created in ${parent?.uid ?? orgId}: ${JSON.stringify(wanted)}`)
  }

  #createBox(orgId: string, parent: ResourceRow | undefined): void {
    this.#create("Box", orgId, parent?.kind === "Box" ? parent : undefined, () => ({}))
  }

  #createThing(): void {
    const box = this.#cluster.timeline.random.pick(this.#rows("Box"))
    if (box !== undefined) this.#create("Thing", box.orgId, box, (uid) => this.#specFor(box.orgId, uid))
  }

  #specFor(orgId: string, uid: string): ThingSpec {
    const { random } = this.#cluster.timeline
    const number = (of: string) => Number(of.replace("thing", ""))
    // Only what was made earlier: no circles.
    const earlier = this.#rows("Thing").filter((row) => row.orgId === orgId && number(row.uid) < number(uid))
    return {
      size: random.int(1, 99),
      needs: random.chance(0.35) ? (random.pick(earlier)?.uid ?? null) : null,
      nature: random.weighted([
        [20, "plain"],
        [2, "impossible"],
        [1, "hopeless"]
      ])
    }
  }

  #change(): void {
    const { timeline, store, watcher } = this.#cluster
    const thing = timeline.random.pick(this.#rows("Thing"))
    if (thing === undefined) return
    const spec = this.#specFor(thing.orgId, thing.uid)
    if (!store.update(thing.uid, { ...spec })) return
    watcher.asked(thing.uid)
    watcher.note(`${thing.uid} shall be ${JSON.stringify(spec)}`)
  }

  #delete({ uid, kind }: ResourceRow): void {
    const { timeline, store, watcher } = this.#cluster
    if (kind === "Box" && timeline.random.chance(0.6)) return
    store.delete(uid)
    watcher.asked(uid)
    watcher.note(`${uid} is to be deleted`)
  }

  #retry({ uid }: ResourceRow): void {
    const { store, watcher } = this.#cluster
    this.retries.set(uid, store.retry(uid))
    watcher.asked(uid)
    watcher.note(`${uid} is to be looked at`)
  }

  #reconcileNow({ orgId, uid }: ResourceRow): void {
    const process = this.#cluster.timeline.random.pick(this.#cluster.processes)
    const worker = process?.worker
    if (process === undefined || worker === undefined) return
    process.machine.deliver(() => void process.machine.fork(worker.runOne(orgId, uid)))
  }

  #pause({ orgId, uid, kind, projectId }: ResourceRow): void {
    const { timeline, store, watcher } = this.#cluster
    const target = timeline.random.weighted<PauseTarget>([
      [6, { scope: "resource", target: uid }],
      [2, { scope: "project", target: projectId ?? uid }],
      [1, { scope: "kind", target: kind }]
    ])
    store.pause(orgId, target, timeline.random.chance(0.5) ? timeline.random.between(1_000, 20_000) : null)
    watcher.note(`${target.scope} ${target.target} is paused`)
  }

  #resume(): void {
    const { timeline, store, watcher } = this.#cluster
    const pause = timeline.random.pick(store.pauses)
    if (pause === undefined) return
    store.resume(pause.orgId, pause)
    watcher.note(`${pause.scope} ${pause.target} is resumed`)
  }
}
