/** What goes wrong. Each fault tells the watcher for how long it may be the reason for a delay. */
import type { Cluster, Process } from "./cluster.ts"

export interface FaultTimes {
  readonly leaseMs: number
  /** Longest that a single call is under way. */
  readonly callMs: number
}

export class Faults {
  readonly #cluster: Cluster
  readonly #times: FaultTimes
  /** Starts another process. */
  readonly #start: () => void

  constructor(cluster: Cluster, times: FaultTimes, start: () => void) {
    this.#cluster = cluster
    this.#times = times
    this.#start = start
  }

  /** One fault, or none when there is nothing it could hit. */
  strike(): void {
    const { timeline, processes, weather, farEnd, watcher } = this.#cluster
    const process = timeline.random.pick(processes)
    const fault = timeline.random.weighted<(process: Process) => void>([
      [4, (one) => this.#crash(one)],
      [4, (one) => this.#freeze(one)],
      [2, (one) => this.#stop(one)],
      [2, () => this.#outage()],
      [1, () => this.#storeCrash()],
      [1, () => this.#storeCrashAfterClaim()],
      [1, () => processes.length < 4 && this.#start()],
      [4, () => this.#drift()]
    ])
    if (process !== undefined) fault(process)
    // While calls may be late or lost, any run may take its full time, and a lost claim rests until its lease ends.
    if (weather.loss > 0 || farEnd.trouble > 0) watcher.excuse(this.#times.leaseMs + this.#times.callMs)
  }

  #crash(process: Process): void {
    const { timeline, watcher } = this.#cluster
    const back = timeline.random.between(0, 10_000)
    watcher.fault(`${process.machine.name} is killed`, back + this.#times.leaseMs)
    this.#cluster.kill(process)
    timeline.after(back, this.#start)
  }

  #freeze(process: Process): void {
    const { leaseMs, callMs } = this.#times
    const { random } = this.#cluster.timeline
    const ms = random.pick([random.between(10, 2_000), random.between(leaseMs, 3 * leaseMs)])!
    // A heartbeat that is under way when it goes on extends what it gives up for want of an answer.
    const felt = ms + leaseMs + callMs
    this.#cluster.watcher.fault(`${process.machine.name} freezes for ${Math.round(ms)} ms`, felt)
    this.#cluster.freeze(process, ms)
  }

  #stop(process: Process): void {
    const { timeline, watcher } = this.#cluster
    const back = timeline.random.between(0, 10_000)
    watcher.fault(`${process.machine.name} is asked to stop`, back + this.#times.leaseMs)
    this.#cluster.shutDown(process)
    timeline.after(back, this.#start)
  }

  #outage(): void {
    const { timeline, watcher, weather } = this.#cluster
    const { leaseMs, callMs } = this.#times
    const { random } = timeline
    const ms = random.pick([random.between(100, 3_000), random.between(leaseMs, 2 * leaseMs)])!
    watcher.fault(`the store is out for ${Math.round(ms)} ms`, ms + leaseMs + callMs)
    weather.outageUntil = Math.max(weather.outageUntil, timeline.now + ms)
  }

  /** What it had not on the disk is gone. Processes go on with leases that are none. */
  #storeCrash(): void {
    const { timeline, watcher, weather, store } = this.#cluster
    const { leaseMs, callMs } = this.#times
    const ms = timeline.random.between(2, 2_000)
    watcher.fault(`the store crashes, and is back in ${Math.round(ms)} ms`, ms + leaseMs + callMs)
    weather.downUntil = Math.max(weather.downUntil, timeline.now + ms)
    watcher.tookBack(store.crash())
  }

  #storeCrashAfterClaim(): void {
    this.#cluster.weather.afterClaim = () => this.#storeCrash()
  }

  #drift(): void {
    const { timeline, watcher, farEnd } = this.#cluster
    const uid = timeline.random.pick([...farEnd.things.keys()])
    if (uid === undefined) return
    watcher.note(`${uid} drifts`)
    if (timeline.random.chance(0.3)) farEnd.things.delete(uid)
    else farEnd.things.get(uid)!.size = timeline.random.int(100, 199)
  }
}
