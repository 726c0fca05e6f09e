/**
 * A deterministic simulation of the engine: several processes, each running the real worker with its own scope, over one
 * store and one far end, on a virtual clock. Processes crash, freeze past their leases, stop and start; the store is
 * out; calls, answers and notifications are late or lost; the far end fails and drifts; people change their minds.
 *
 * One seed is one history, down to the order of the steps of fibers. The watcher checks every step; once faults
 * stop, everything must settle, and whatever has settled must stay so.
 */

import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import { EngineOptions } from "#src/engine/options.ts"
import { Registry } from "#src/engine/Reconciler.ts"
import * as Worker from "#src/engine/Worker.ts"
import { WorkStore } from "#src/engine/WorkStore.ts"
import { type Flaw, MemoryStore, type ResourceRow } from "./memory-work-store.ts"
import { Connection, Weather } from "./simulation/connection.ts"
import { FarEnd, type ThingSpec } from "./simulation/far-end.ts"
import { Machine, Timeline } from "./simulation/machines.ts"
import { Violation, Watcher } from "./simulation/watcher.ts"

export { type Guarantee, Violation } from "./simulation/watcher.ts"

export interface SimulationOptions {
  readonly flaws?: ReadonlyArray<Flaw>
  /** Off: the far end takes writes from anybody. */
  readonly fencedFarEnd?: boolean
}

/** The engine's times, shorter; a wait ends only by being woken. */
const times: EngineOptions = {
  concurrency: 8,
  orgShare: 0.75,
  leaseMs: 8_000,
  heartbeatMs: 2_000,
  pollMs: 3_000,
  drainMs: 2_000,
  backoffMs: [200, 3_000],
  stallAfter: 5,
  stalledRetryMs: 10_000,
  waitMs: 3_600_000,
  maxSteps: 10,
  runMs: 10_000
}
const driftIntervalMs = 20_000
/** How long a person waits at most while nothing is wrong: one run that hangs, and the way to the next. */
const patienceMs = times.runMs + times.pollMs + 5_000
/** How long after the last fault everything is as it was asked for. */
const settleMs = 150_000

interface Process {
  readonly machine: Machine
  readonly connection: Connection
  main: Fiber.Fiber<unknown> | undefined
  worker: Worker.Worker["Service"] | undefined
  stopping: boolean
}

export class Simulation {
  readonly timeline: Timeline
  readonly store: MemoryStore
  readonly watcher: Watcher
  readonly farEnd: FarEnd
  readonly #weather = new Weather()
  readonly #orgs = ["org-a", "org-b"]
  readonly #options: EngineOptions
  readonly #concurrency: number
  #processes: Array<Process> = []
  #started = 0
  #made = 0
  /** The newest "retry now" of each resource. */
  readonly #retries = new Map<string, string>()

  constructor(seed: number, options: SimulationOptions = {}) {
    this.timeline = new Timeline(seed)
    this.store = new MemoryStore(() => this.timeline.now, new Set(options.flaws))
    this.watcher = new Watcher(this.timeline, this.store)
    this.farEnd = new FarEnd(this.timeline, this.watcher, { fenced: options.fencedFarEnd ?? true })
    this.store.announce = () => {
      for (const { connection } of this.#processes) connection.announce()
    }
    const { random } = this.timeline
    this.#options = { ...times, concurrency: random.int(2, 12) }
    this.#concurrency = random.int(2, 8)
  }

  /** Plays the whole history. Throws the first {@link Violation}. */
  run(): void {
    const { random } = this.timeline
    for (const org of this.#orgs) this.#createBox(org, null)
    for (let i = random.int(1, 3); i > 0; i--) this.#start()
    const chaosEnds = this.timeline.now + random.between(15_000, 40_000)
    this.#weather.loss = random.pick([0, 0.005, 0.02])!
    this.farEnd.trouble = random.pick([0, 0.02, 0.1])!
    this.#every(
      () => random.between(50, 1_500),
      chaosEnds,
      () => this.#act()
    )
    this.#every(
      () => random.between(500, 8_000),
      chaosEnds,
      () => this.#hurt()
    )
    this.#every(
      () => 500,
      Number.POSITIVE_INFINITY,
      () => this.watcher.check(patienceMs, this.#deadline)
    )
    this.timeline.runUntil(chaosEnds)
    this.#calmDown()
    this.#settle()
    this.#stayWell()
    this.#stop()
  }

  /** Repeats itself until then. */
  #every(pause: () => number, end: number, run: () => void): void {
    this.timeline.after(pause(), () => {
      if (this.timeline.now >= end) return
      run()
      this.#every(pause, end, run)
    })
  }

  /** A phase may last as long as its kind allows, and until the next look at a stalled resource. */
  readonly #deadline = (): number => 20_000 + 1.25 * times.stalledRetryMs + patienceMs

  // Processes ----------------------------------------------------------------------------------------------------

  #start(): void {
    const machine = new Machine(`p${++this.#started}`, this.timeline)
    const connection = new Connection(machine, this.store, this.watcher, this.#weather)
    const process: Process = { machine, connection, main: undefined, worker: undefined, stopping: false }
    this.#processes.push(process)
    this.watcher.note(`${machine.name} starts`)
    const engine = Worker.layer.pipe(
      Layer.provide(this.farEnd.layer(machine.name, connection, this.#concurrency, driftIntervalMs)),
      Layer.provide(Registry.layer),
      Layer.provide(Layer.succeed(WorkStore, connection.workStore)),
      Layer.provide(Layer.succeed(Worker.WorkSignal, connection.signal)),
      Layer.provide(Layer.succeed(EngineOptions, this.#options))
    )
    process.main = machine.fork(
      Effect.scoped(
        Effect.flatMap(Layer.build(engine), (context) => {
          process.worker = Context.get(context, Worker.Worker)
          return Effect.never
        })
      )
    )
    process.main.addObserver((exit) => {
      this.#processes = this.#processes.filter((other) => other !== process)
      this.watcher.note(`${machine.name} ended`)
      if (!process.stopping)
        this.timeline.after(0, () => {
          throw new Violation("processes live on", `${machine.name} ended by itself: ${String(exit)}`)
        })
    })
  }

  #kill(process: Process): void {
    process.machine.kill()
    this.#processes = this.#processes.filter((other) => other !== process)
  }

  #shutDown(process: Process): void {
    process.stopping = true
    process.machine.deliver(() => process.main?.interruptUnsafe())
  }

  /** One fault. */
  #hurt(): void {
    const { random } = this.timeline
    const process = random.pick(this.#processes)
    const back = random.between(0, 10_000)
    const { leaseMs } = times
    random.weighted<() => void>([
      [
        4,
        () => {
          if (process === undefined) return
          this.watcher.fault(`${process.machine.name} is killed`, leaseMs + back)
          this.#kill(process)
          this.timeline.after(back, () => this.#start())
        }
      ],
      [
        4,
        () => {
          if (process === undefined) return
          const ms = random.pick([random.between(10, 2_000), random.between(leaseMs, 3 * leaseMs)])!
          this.watcher.fault(`${process.machine.name} freezes for ${Math.round(ms)} ms`, ms + leaseMs)
          process.machine.freeze()
          this.timeline.after(ms, () => {
            this.watcher.note(`${process.machine.name} goes on`)
            process.machine.thaw()
          })
        }
      ],
      [
        2,
        () => {
          if (process === undefined) return
          this.watcher.fault(`${process.machine.name} is asked to stop`, leaseMs + back)
          this.#shutDown(process)
          this.timeline.after(back, () => this.#start())
        }
      ],
      [
        2,
        () => {
          const ms = random.pick([random.between(100, 3_000), random.between(leaseMs, 2 * leaseMs)])!
          this.watcher.fault(`the store is out for ${Math.round(ms)} ms`, ms + leaseMs + 8_000)
          this.#weather.outageUntil = Math.max(this.#weather.outageUntil, this.timeline.now + ms)
        }
      ],
      [1, () => this.#processes.length < 4 && this.#start()],
      [
        4,
        () => {
          const uid = random.pick([...this.farEnd.things.keys()])
          if (uid === undefined) return
          this.watcher.note(`${uid} drifts`)
          if (random.chance(0.3)) this.farEnd.things.delete(uid)
          else this.farEnd.things.get(uid)!.size = random.int(100, 199)
        }
      ]
    ])()
    // While calls may fail or be late, any run may take its full time, and a lost claim its lease.
    if (this.#weather.loss > 0 || this.farEnd.trouble > 0) this.watcher.excuse(leaseMs + 8_000)
  }

  // People -------------------------------------------------------------------------------------------------------

  #createBox(orgId: string, parent: ResourceRow | null): void {
    const uid = `box${++this.#made}`
    const projectId = parent === null ? null : (parent.projectId ?? parent.uid)
    const parentUid = parent?.uid ?? null
    const created = { orgId, uid, kind: "Box", projectId, name: uid, parentUid, spec: {}, secrets: [] }
    if (this.store.create(created)) this.watcher.asked(uid)
  }

  #spec(orgId: string, exceptUid: string): ThingSpec {
    const { random } = this.timeline
    // Only what was made earlier: no circles.
    const number = Number(exceptUid.slice(5))
    const others = [...this.store.resources.values()].filter(
      (row) => row.kind === "Thing" && row.orgId === orgId && Number(row.uid.slice(5)) < number
    )
    return {
      size: random.int(1, 99),
      needs: random.chance(0.35) ? (random.pick(others)?.uid ?? null) : null,
      nature: random.weighted([
        [20, "plain"],
        [2, "impossible"],
        [1, "hopeless"]
      ])
    }
  }

  /** Somebody does something. */
  #act(): void {
    const { random } = this.timeline
    const rows = [...this.store.resources.values()]
    const things = rows.filter((row) => row.kind === "Thing")
    const boxes = rows.filter((row) => row.kind === "Box" && !row.deleting)
    const row = random.pick(rows)
    const thing = random.pick(things)
    const box = random.pick(boxes)
    const org = random.pick(this.#orgs)!
    const { watcher, store } = this
    watcher.counts.actions++
    random.weighted<() => void>([
      [
        3,
        () =>
          boxes.length < 6 && this.#createBox(box?.orgId ?? org, random.chance(0.6) ? (box ?? null) : null)
      ],
      [
        things.length < 14 ? 12 : 1,
        () => {
          if (box === undefined) return
          const uid = `thing${++this.#made}`
          const projectId = box.projectId ?? box.uid
          const spec = this.#spec(box.orgId, uid)
          const { orgId } = box
          store.create({
            orgId,
            uid,
            kind: "Thing",
            projectId,
            name: uid,
            parentUid: box.uid,
            spec,
            secrets: []
          })
          watcher.asked(uid)
          watcher.note(`${uid} is created in ${box.uid}: ${JSON.stringify(spec)}`)
        }
      ],
      [
        10,
        () => {
          if (thing === undefined) return
          const spec = this.#spec(thing.orgId, thing.uid)
          if (!store.update(thing.uid, spec)) return
          watcher.asked(thing.uid)
          watcher.note(`${thing.uid} shall be ${JSON.stringify(spec)}`)
        }
      ],
      [
        3,
        () => {
          if (row === undefined || (row.kind === "Box" && random.chance(0.6))) return
          watcher.note(`${row.uid} is to be deleted`)
          store.delete(row.uid)
          watcher.asked(row.uid)
        }
      ],
      [
        3,
        () => {
          if (row === undefined) return
          watcher.note(`${row.uid} is to be looked at`)
          this.#retries.set(row.uid, store.retry(row.uid))
          watcher.asked(row.uid)
        }
      ],
      [
        2,
        () => {
          const process = random.pick(this.#processes)
          if (row === undefined || process === undefined) return
          const { worker, machine } = process
          if (worker !== undefined)
            machine.deliver(() => void machine.fork(worker.runOne(row.orgId, row.uid)))
        }
      ],
      [
        2,
        () => {
          if (row === undefined) return
          const target = random.weighted([
            [6, { scope: "resource", target: row.uid } as const],
            [2, { scope: "project", target: row.projectId ?? row.uid } as const],
            [1, { scope: "kind", target: row.kind } as const]
          ])
          watcher.note(`${target.scope} ${target.target} is paused`)
          store.pause(row.orgId, target, random.chance(0.5) ? random.between(1_000, 20_000) : null)
        }
      ],
      [
        3,
        () => {
          const pause = random.pick(store.pauses)
          if (pause === undefined) return
          watcher.note(`${pause.scope} ${pause.target} is resumed`)
          store.resume(pause.orgId, pause)
        }
      ]
    ])()
  }

  // The end ------------------------------------------------------------------------------------------------------

  /** No further faults. Some of the pauses without an end stay. */
  #calmDown(): void {
    this.watcher.note("faults stop")
    this.#weather.loss = 0
    this.farEnd.trouble = 0
    this.#weather.outageUntil = 0
    if (this.#processes.length === 0) this.#start()
    for (const pause of [...this.store.pauses]) {
      if (pause.until !== null || this.timeline.random.chance(0.7)) this.store.resume(pause.orgId, pause)
    }
  }

  #settle(): void {
    const end = this.timeline.now + settleMs
    let trouble: string | undefined
    while (this.timeline.now < end) {
      trouble = this.#unsettled()
      if (trouble === undefined) return
      this.timeline.runUntil(this.timeline.now + 1_000)
    }
    throw new Violation("everything settles", trouble ?? "")
  }

  /** A round of drift looks finds nothing to do, and changes are taken up without delay. */
  #stayWell(): void {
    const { watcher, timeline, store } = this
    timeline.runUntil(timeline.now + 2_000)
    watcher.checkWaiting()
    const writes = watcher.counts.writes
    timeline.runUntil(timeline.now + 1.2 * driftIntervalMs)
    const trouble = this.#unsettled()
    if (trouble !== undefined) throw new Violation("everything settles", `it did not stay so: ${trouble}`)
    const rows = [...store.resources.values()].filter((row) => this.#expectsReady(row))
    const unfinished = [...store.resources.values()].some(
      (row) => row.phase !== "ready" && row.phase !== "failed"
    )
    if (!unfinished && watcher.counts.writes !== writes)
      throw new Violation("everything settles", "something was written although nothing had changed")
    for (const row of rows) {
      if (row.kind !== "Thing") continue
      store.update(row.uid, { ...(row.spec as ThingSpec), size: 50 })
      watcher.asked(row.uid)
    }
    timeline.runUntil(timeline.now + 30_000, () => this.#unsettled() === undefined)
    const still = this.#unsettled()
    if (still !== undefined)
      throw new Violation("everything settles", `the last change was not carried out: ${still}`)
  }

  #stop(): void {
    const { timeline, watcher, store } = this
    watcher.note("all stop")
    for (const process of this.#processes) this.#shutDown(process)
    timeline.runUntil(timeline.now + times.drainMs + 8_000, () => this.#processes.length === 0)
    const late = this.#processes[0]
    if (late !== undefined) throw new Violation("processes live on", `${late.machine.name} does not stop`)
    for (const { uid, leaseToken } of store.work.values()) {
      if (leaseToken !== null) throw new Violation("leases are given back", `${uid} is still leased`)
    }
  }

  #expectsReady(row: ResourceRow): boolean {
    if (this.store.pausedNow(row) !== null) return false
    if (row.kind === "Box") return true
    const spec = row.spec as ThingSpec
    if (spec.nature !== "plain") return false
    if (spec.needs === null) return true
    const needed = this.store.resources.get(spec.needs)
    return needed !== undefined && !needed.deleting && needed.phase === "ready"
  }

  /** Whether something in it, or it itself, may not be touched. */
  #holdsPaused(row: ResourceRow): boolean {
    if (this.store.pausedNow(row) !== null) return true
    return [...this.store.resources.values()].some(
      (child) => child.parentUid === row.uid && this.#holdsPaused(child)
    )
  }

  /** What is not as it was asked for, in words. */
  #unsettled(): string | undefined {
    for (const row of this.store.resources.values()) {
      const { uid, phase } = row
      const work = this.store.work.get(uid)
      const retry = this.#retries.get(uid)
      if (retry !== undefined && work?.handledRetry !== retry)
        return `${uid} was not looked at again (${retry})`
      if (row.deleting) {
        if (this.#holdsPaused(row)) continue
        return `${uid} is ${phase} and still there`
      }
      if (this.store.pausedNow(row) !== null) continue
      const spec = row.spec as ThingSpec
      if (row.kind === "Thing" && spec.nature === "impossible") {
        // Nobody asks for what is there already.
        if (phase !== "failed" && this.farEnd.find(uid)?.size !== spec.size) return `${uid} is ${phase} and cannot be`
      } else if (row.kind === "Thing" && spec.nature === "hopeless") {
        if (phase === "ready") return `${uid} is called ready`
      } else if (this.#expectsReady(row)) {
        if (phase !== "ready" || row.observedGeneration !== row.generation)
          return `${uid} is ${phase} at ${row.observedGeneration} of ${row.generation}`
        if (row.kind === "Thing" && this.farEnd.find(uid)?.size !== spec.size)
          return `${uid} is ${this.farEnd.find(uid)?.size} and should be ${spec.size}`
        if (row.kind === "Thing" && (row.status as { readonly size: number }).size !== spec.size)
          return `${uid} is reported with another size`
      } else if (phase !== "waiting" && phase !== "ready") return `${uid} is ${phase} and has to wait`
    }
    for (const uid of this.farEnd.things.keys()) {
      if (!this.store.resources.has(uid) && this.farEnd.find(uid) !== undefined)
        return `${uid} was left behind`
    }
    return undefined
  }
}
