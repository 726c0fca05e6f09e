/**
 * A deterministic simulation of the engine: several processes, each running the real worker, over one store and one far
 * end, on a virtual clock. Processes crash, freeze past their leases, stop and start; the store is out; calls, answers
 * and notifications are late or lost; the far end fails, hangs and drifts; people change their minds.
 *
 * One seed is one history, down to the order of the steps of fibers. The watcher checks every step. Once faults stop,
 * everything must settle, stay so, take up a last change without delay, and be given back when all processes stop.
 */
import type { EngineOptions } from "#src/engine/options.ts"
import { Cluster, type ClusterOptions } from "./simulation/cluster.ts"
import { Faults } from "./simulation/faults.ts"
import { People } from "./simulation/people.ts"
import { canBeReady, specOf, unsettled } from "./simulation/settled.ts"
import { isFinal, Violation } from "./simulation/watcher.ts"

/** The engine's times, shorter. A waiting resource is woken or waits for longer than a history lasts. */
export const times: EngineOptions = {
  concurrency: 8,
  orgShare: 0.75,
  leaseMs: 6_000,
  heartbeatMs: 1_500,
  pollMs: 3_000,
  drainMs: 2_000,
  backoffMs: [200, 3_000],
  stallAfter: 5,
  stalledRetryMs: 10_000,
  waitMs: 3_600_000,
  // Longer than a history: whatever all processes lose sight of, stays so.
  keptForMs: 7_200_000,
  maxSteps: 10,
  runMs: 14_000
}
const longestDriftIntervalMs = 20_000
/** Longest that a call to the store or the far end is under way while faults are on. */
const callMs = 8_000
/** How long a run that cannot be interrupted keeps others away: its time, its lease, and the way to the next. */
const clingMs = 2 * times.runMs + 2 * times.heartbeatMs + times.leaseMs + times.pollMs
/** How long a person waits at most while nothing is wrong: for one run that hangs, and the way to the next. */
const patienceMs = times.runMs + times.pollMs + 5_000
/** The same while the far end is so slow that few resources fill all the room. */
const slowPatienceMs = 120_000
/** A phase may last as long as its kind allows, and then until the next look at a stalled resource. */
const longestPhaseMs = 20_000 + 1.25 * times.stalledRetryMs + patienceMs
/** How long after the last fault everything is as it was asked for. */
const settleMs = 150_000

export class Simulation {
  readonly cluster: Cluster
  readonly #people: People
  readonly #faults: Faults

  constructor(seed: number, options: ClusterOptions = {}) {
    this.cluster = new Cluster(seed, { clingMs, ...options })
    const { random } = this.cluster.timeline
    const concurrency = random.int(2, 8)
    const driftIntervalMs = random.pick([5_000, longestDriftIntervalMs])!
    const engine = { ...times, concurrency: random.int(2, 12) }
    const start = () => this.cluster.start({ engine, concurrency, driftIntervalMs })
    this.#people = new People(this.cluster)
    this.#faults = new Faults(this.cluster, { leaseMs: times.leaseMs, callMs }, start)
    for (let i = random.int(1, 3); i > 0; i--) start()
  }

  /** Plays the whole history. Throws the first {@link Violation}. */
  run(): void {
    const { watcher, farEnd } = this.cluster
    this.cluster.every(
      () => 500,
      Number.POSITIVE_INFINITY,
      () => watcher.check(farEnd.slownessMs > 0 ? slowPatienceMs : patienceMs, longestPhaseMs)
    )
    this.#suffer()
    this.#settle()
    this.#stayWell()
    this.#change()
    this.#stopInTheMiddle()
  }

  #suffer(): void {
    const { timeline, weather, farEnd, watcher, store } = this.cluster
    const { random } = timeline
    const end = timeline.now + random.between(15_000, 40_000)
    weather.loss = random.pick([0, 0.005, 0.02])!
    farEnd.trouble = random.pick([0, 0.02, 0.1])!
    farEnd.clinging = random.pick([0, 0, 0.5])!
    // Slow enough that a run of several steps outlasts the lease it began with.
    farEnd.slownessMs = random.pick([0, 0, 0, 2_500])!
    const often = () => random.between(50, 1_500)
    const seldom = () => random.between(200, 4_000)
    this.cluster.every(often, end, () => this.#people.act())
    this.cluster.every(seldom, end, () => this.#faults.strike())
    timeline.runUntil(end)
    watcher.note("faults stop")
    // What is on its way may take that long, and give a lease once more that nobody heard of.
    if (weather.loss > 0) watcher.excuse(callMs + times.leaseMs)
    weather.loss = 0
    weather.outageUntil = 0
    weather.downUntil = 0
    weather.afterClaim = undefined
    farEnd.trouble = 0
    farEnd.clinging = 0
    if (farEnd.slownessMs > 0) watcher.excuse(slowPatienceMs / 4)
    farEnd.slownessMs = 0
    // Some of the pauses without an end stay.
    for (const pause of [...store.pauses])
      if (pause.until !== null || random.chance(0.7)) store.resume(pause.orgId, pause)
  }

  #settle(): void {
    const { timeline, store, watcher } = this.cluster
    const began = timeline.now
    // A run that was struck by a fault may still be at it when everything looks well.
    const struck = () =>
      [...store.work.values()].find(
        ({ uid, leaseToken }) => leaseToken !== null && watcher.lastTurn(uid) < began
      )
    while (this.#trouble() !== undefined || struck() !== undefined) {
      if (timeline.now > began + settleMs) break
      timeline.runUntil(timeline.now + 1_000)
    }
    this.#demand("")
    const late = struck()
    if (late !== undefined) throw new Violation("leases are given back", `${late.uid} never was`)
  }

  /** A round of looks finds nothing to do, and nothing waits for what has happened already. */
  #stayWell(): void {
    const { timeline, watcher, store } = this.cluster
    timeline.runUntil(timeline.now + 2_000)
    watcher.checkWaiting()
    // A run that began before a pause may still be at a change that was asked for earlier.
    const ready = [...store.resources.values()]
      .filter((row) => row.phase === "ready" && row.observedGeneration === row.generation)
      .map((row) => row.uid)
    const writes = ready.map((uid) => watcher.writesTo(uid))
    timeline.runUntil(timeline.now + 1.2 * longestDriftIntervalMs)
    this.#demand("it did not stay so: ")
    const touched = ready.find((uid, index) => watcher.writesTo(uid) !== writes[index])
    if (touched !== undefined)
      throw new Violation(
        "what is ready is left alone",
        `${touched} was written although nothing had changed`
      )
    // What never gets anywhere must be told to have failed in time.
    const underway = [...store.resources.values()].some((row) => !isFinal(row.phase) && !row.deleting)
    if (underway) timeline.runUntil(timeline.now + 1.2 * longestPhaseMs)
  }

  #change(): void {
    const { timeline, watcher, store } = this.cluster
    const began = timeline.now
    const changed = [...store.resources.values()].filter(
      (row) => row.kind === "Thing" && canBeReady(this.cluster, row)
    )
    for (const row of changed) {
      store.update(row.uid, { ...specOf(row), size: 50 })
      watcher.asked(row.uid)
    }
    // Sooner than any poll: the announcement did it.
    timeline.runUntil(began + times.pollMs / 2)
    const late = changed.find((row) => watcher.lastTurn(row.uid) < began)
    if (late !== undefined) throw new Violation("nobody waits long", `${late.uid} waits for a poll`)
    timeline.runUntil(timeline.now + 30_000, () => this.#trouble() === undefined)
    this.#demand("the last change was not carried out: ")
  }

  #stopInTheMiddle(): void {
    const { timeline, farEnd, store, watcher } = this.cluster
    farEnd.trouble = 0.3
    for (const uid of store.resources.keys()) {
      store.retry(uid)
      watcher.asked(uid)
    }
    timeline.runUntil(timeline.now + timeline.random.between(0, 500))
    this.cluster.stopAll(times.drainMs + callMs)
  }

  #trouble(): string | undefined {
    return unsettled(this.cluster, this.#people.retries)
  }

  #demand(otherwise: string): void {
    const trouble = this.#trouble()
    if (trouble !== undefined) throw new Violation("everything settles", otherwise + trouble)
  }
}
