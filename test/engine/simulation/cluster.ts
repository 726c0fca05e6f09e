/**
 * Several processes over one store and one far end. Each runs the real worker with everything that belongs to it, in a
 * machine of its own, so that it can be killed, frozen or asked to stop while the others go on.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import { EngineOptions, NewProcessId } from "#src/engine/options.ts"
import { Registry } from "#src/engine/Reconciler.ts"
import * as Worker from "#src/engine/Worker.ts"
import { WorkStore } from "#src/engine/WorkStore.ts"
import type { Flaw } from "../memory-rows.ts"
import { MemoryStore } from "../memory-work-store.ts"
import { Connection, Weather } from "./connection.ts"
import { FarEnd, type Fenced } from "./far-end.ts"
import { Machine, Timeline } from "./machines.ts"
import { Violation, Watcher } from "./watcher.ts"

export interface ClusterOptions {
  readonly flaws?: ReadonlyArray<Flaw>
  readonly fenced?: Fenced
  readonly heedless?: boolean
  readonly clingMs?: number
}

export interface ProcessOptions {
  readonly engine: EngineOptions
  /** Of each kind. */
  readonly concurrency: number
  readonly driftIntervalMs: number
}

export interface Process {
  readonly machine: Machine
  readonly connection: Connection
  main: Fiber.Fiber<unknown> | undefined
  worker: Worker.Worker["Service"] | undefined
  stopping: boolean
}

export class Cluster {
  readonly timeline: Timeline
  readonly store: MemoryStore
  readonly watcher: Watcher
  readonly farEnd: FarEnd
  readonly weather = new Weather()
  #processes: Array<Process> = []
  #started = 0

  constructor(seed: number, { flaws, fenced, heedless = false, clingMs = 0 }: ClusterOptions = {}) {
    this.timeline = new Timeline(seed)
    this.store = new MemoryStore(() => this.timeline.now, new Set(flaws))
    this.watcher = new Watcher(this.timeline, this.store)
    this.farEnd = new FarEnd(this.timeline, this.watcher, {
      fenced: fenced ?? this.timeline.random.pick(["looks and writes", "writes"])!,
      heedless,
      clingMs
    })
    this.store.announce = () => {
      for (const { connection } of this.#processes) connection.announce()
    }
    this.store.announceMembers = () => {
      for (const { connection } of this.#processes) connection.announceMembers()
    }
  }

  get processes(): ReadonlyArray<Process> {
    return this.#processes
  }

  /** Repeats itself until then. */
  every(pause: () => number, end: number, run: () => void): void {
    this.timeline.after(pause(), () => {
      if (this.timeline.now >= end) return
      run()
      this.every(pause, end, run)
    })
  }

  start({ engine, concurrency, driftIntervalMs }: ProcessOptions): void {
    const machine = new Machine(`p${++this.#started}`, this.timeline)
    const connection = new Connection(machine, this.store, this.watcher, this.weather)
    const process: Process = { machine, connection, main: undefined, worker: undefined, stopping: false }
    this.#processes.push(process)
    this.watcher.note(`${machine.name} starts`)
    const layer = Worker.layer.pipe(
      Layer.provide(this.farEnd.layer(machine.name, connection, concurrency, driftIntervalMs)),
      Layer.provide(Registry.layer),
      Layer.provide(Layer.succeed(WorkStore, connection.workStore)),
      Layer.provide(Layer.succeed(Worker.WorkSignal, connection.signal)),
      Layer.provide(Layer.succeed(Worker.MemberSignal, connection.memberSignal)),
      Layer.provide(Layer.succeed(EngineOptions, engine)),
      Layer.provide(Layer.succeed(NewProcessId, Effect.succeed(machine.name)))
    )
    process.main = machine.fork(
      Effect.scoped(
        Effect.flatMap(Layer.build(layer), (context) => {
          process.worker = Context.get(context, Worker.Worker)
          return Effect.never
        })
      )
    )
    process.main.addObserver((exit) => {
      this.#forget(process)
      this.watcher.note(`${machine.name} ended`)
      if (process.stopping) return
      // Thrown from the timeline: whatever is thrown here, a fiber would take for its own.
      this.timeline.after(0, () => {
        throw new Violation("processes live on", `${machine.name} ended by itself: ${String(exit)}`)
      })
    })
  }

  /** Ends it between two steps. What it sent is on its way; what it would have done, it does not do. */
  kill(process: Process): void {
    process.machine.kill()
    this.#forget(process)
  }

  freeze({ machine }: Process, ms: number): void {
    machine.freeze()
    this.timeline.after(ms, () => {
      this.watcher.note(`${machine.name} goes on`)
      machine.thaw()
    })
  }

  shutDown(process: Process): void {
    process.stopping = true
    process.machine.deliver(() => process.main?.interruptUnsafe())
  }

  /** All processes stop as they should, and give everything back. */
  stopAll(withinMs: number): void {
    this.watcher.note("all stop")
    for (const process of this.#processes) this.shutDown(process)
    this.timeline.runUntil(this.timeline.now + withinMs, () => this.#processes.length === 0)
    const late = this.#processes[0]
    if (late !== undefined) throw new Violation("processes live on", `${late.machine.name} does not stop`)
    // What clung to its run was left to the end of its lease, which may be still to come.
    if (this.watcher.isExcused) return
    for (const { uid, leaseToken } of this.store.work.values()) {
      if (leaseToken !== null) throw new Violation("leases are given back", `${uid} is still leased`)
    }
  }

  #forget(process: Process): void {
    this.#processes = this.#processes.filter((other) => other !== process)
  }
}
