/**
 * Sees everything that happens in a simulation and says what must never happen. It keeps books of its own, from what
 * passes between the processes, the store and the far end, and asks none of them whether they behaved.
 */
import type { Claimed, Lease, Recorded } from "#src/engine/WorkStore.ts"
import type { MemoryStore } from "../memory-work-store.ts"
import type { Timeline } from "./machines.ts"

/** What the engine guarantees, and a simulation can find broken. */
export type Guarantee =
  | "one at a time"
  | "leases are kept"
  | "a lost lease writes nothing"
  | "one writer out there"
  | "paused is not touched"
  | "what is gone leaves nothing behind"
  | "children go first"
  | "nothing runs hot"
  | "nobody waits long"
  | "phases have deadlines"
  | "what has failed stays so"
  | "deletion is not taken back"
  | "everything settles"
  | "what is ready is left alone"
  | "waiting ones are woken"
  | "nothing is lost"
  | "leases are given back"
  | "processes live on"

export class Violation extends Error {
  readonly guarantee: Guarantee
  constructor(guarantee: Guarantee, message: string) {
    super(`${guarantee}: ${message}`)
    this.guarantee = guarantee
  }
}

/** May last. */
export const isFinal = (phase: string): boolean =>
  phase === "ready" || phase === "waiting" || phase === "failed"

/** How often one resource may be claimed within five seconds. */
const turnsAtOnce = 80

interface Held {
  readonly token: bigint
  readonly machine: string
  until: number
  /** Whether it was paused when the run began, so that the run may not touch anything. */
  readonly paused: boolean
}

export class Watcher {
  readonly #timeline: Timeline
  readonly #store: MemoryStore
  /** The lease of each resource that nobody gave back yet, by our own account. */
  readonly #held = new Map<string, Held>()
  /** Every lease there ever was, by token. */
  readonly #runs = new Map<bigint, Held & { readonly uid: string }>()
  /** Leases that a crash of the store took back. */
  readonly #takenBack = new Set<bigint>()
  #newestToken = 0n
  /** Highest fence that wrote, out there. */
  readonly #wrote = new Map<string, bigint>()
  readonly #writes = new Map<string, number>()
  /** Since when a person waits for the next run. */
  readonly #asked = new Map<string, number>()
  readonly #claimedAt = new Map<string, number>()
  readonly #changedAt = new Map<string, number>()
  readonly #gone = new Set<string>()
  /** What was recorded as failed, and nobody has asked for since the run began that found it so. */
  readonly #failed = new Set<string>()
  readonly #askedDuring = new Set<string>()
  readonly #turns = new Map<string, Array<number>>()
  /** Until when a fault may still be the reason for a delay. */
  #excusedUntil: number
  readonly #trace: Array<string> = []
  readonly counts = {
    claims: 0,
    looks: 0,
    records: 0,
    refused: 0,
    writes: 0,
    fenced: 0,
    faults: 0,
    takenBack: 0,
    actions: 0
  }

  constructor(timeline: Timeline, store: MemoryStore) {
    this.#timeline = timeline
    this.#store = store
    this.#excusedUntil = timeline.now
  }

  /** The last things that happened, for whoever has to understand a violation. */
  get history(): ReadonlyArray<string> {
    return this.#trace
  }

  /** Is told every line of the history, as it happens. */
  listen: (line: string) => void = () => undefined

  note(what: string): void {
    const line = `${((this.#timeline.now % 86_400_000) / 1000).toFixed(3)} ${what}`
    this.#trace.push(line)
    if (this.#trace.length > 400) this.#trace.splice(0, 200)
    this.listen(line)
  }

  /** From now on, and for so long after it ends, lateness is nobody's fault. */
  fault(what: string, forMs: number): void {
    this.counts.faults++
    this.note(what)
    this.excuse(forMs)
  }
  get isExcused(): boolean {
    return this.#excusedUntil > this.#timeline.now
  }
  excuse(forMs: number): void {
    this.#excusedUntil = Math.max(this.#excusedUntil, this.#timeline.now + forMs)
  }

  // The store ----------------------------------------------------------------------------------------------------

  claimed(machine: string, claimed: ReadonlyArray<Claimed>, leaseMs: number): void {
    const { now } = this.#timeline
    for (const { uid, token, attempt } of claimed) {
      this.counts.claims++
      const before = this.#held.get(uid)
      if (before !== undefined && before.until > now) {
        throw new Violation("one at a time", `${machine} got ${uid}, which ${before.machine} still holds`)
      }
      // Somebody may have been too busy to claim it when it ended.
      if (before !== undefined && before.until > this.#excusedUntil)
        throw new Violation(
          "leases are kept",
          `${before.machine} lost the lease of ${uid} although nothing was wrong`
        )
      if (token <= this.#newestToken)
        throw new Violation("one at a time", `the token ${token} of ${uid} is not new`)
      this.#newestToken = token
      const paused = this.#store.pausedNow(this.#store.resources.get(uid)!) !== null
      const held = { token, machine, until: now + leaseMs, paused }
      this.#held.set(uid, held)
      this.#runs.set(token, { ...held, uid })
      this.#claimedAt.set(uid, now)
      this.#askedDuring.delete(uid)
      this.#countTurn(uid)
      this.#asked.delete(uid)
      this.note(`${machine} claims ${uid} #${token} attempt ${attempt}${paused ? " (paused)" : ""}`)
    }
  }

  /** Loaded for a look without a lease, which may write nothing out there: its fence is known to nobody. */
  looked(machine: string, loaded: ReadonlyArray<Claimed>): void {
    for (const { uid } of loaded) {
      this.counts.looks++
      this.#countTurn(uid)
      this.#claimedAt.set(uid, this.#timeline.now)
      this.note(`${machine} looks at ${uid}`)
    }
  }

  /** However often it is woken, and whatever goes wrong, there are pauses between its turns. */
  #countTurn(uid: string): void {
    const { now } = this.#timeline
    const turns = this.#turns.get(uid) ?? []
    this.#turns.set(uid, turns)
    if (turns.push(now) < turnsAtOnce) return
    if (now - turns.shift()! < 5_000)
      throw new Violation("nothing runs hot", `${uid} was claimed ${turnsAtOnce} times in five seconds`)
  }

  kept(leases: ReadonlyArray<Lease>, leaseMs: number): void {
    for (const { uid, token } of leases) {
      const held = this.#held.get(uid)
      if (held?.token !== token)
        throw new Violation("a lost lease writes nothing", `#${token} of ${uid} was kept although it is lost`)
      held.until = this.#timeline.now + leaseMs
    }
  }

  recorded(machine: string, results: ReadonlyArray<Recorded>, kept: ReadonlyArray<Lease>): void {
    for (const result of results) {
      const { uid, token } = result.lease
      if (!kept.includes(result.lease)) {
        this.counts.refused++
        this.note(`${machine} may not record ${uid} #${token}`)
        continue
      }
      this.counts.records++
      const { change } = result
      this.note(
        `${machine} records ${uid} #${token} ${change?.phase ?? "as it was"} gen ${change?.observedGeneration ?? "-"} ` +
          `due in ${Math.round(result.dueIn)}${result.waitingOn === null ? "" : ` waits for ${JSON.stringify(result.waitingOn)}`}`
      )
      if (this.#held.get(uid)?.token !== token)
        throw new Violation(
          "a lost lease writes nothing",
          `${machine} recorded ${uid} with the lost lease #${token}`
        )
      this.#held.delete(uid)
      if (change === undefined) continue
      this.#changedAt.set(uid, this.#timeline.now)
      if (change.gone) this.#gone.add(uid)
      this.#checkFailed(uid, change.phase)
      const left = change.gone && [...this.#store.resources.values()].find((row) => row.parentUid === uid)
      if (left) throw new Violation("children go first", `${uid} is gone and still contained ${left.uid}`)
    }
  }

  /** Nobody should see it go to and fro: it is ready, waits, or somebody has asked for something. */
  #checkFailed(uid: string, phase: string): void {
    if (this.#failed.has(uid) && (phase === "provisioning" || phase === "updating"))
      throw new Violation("what has failed stays so", `${uid} has failed and is called ${phase}`)
    if (phase === "failed" && !this.#askedDuring.has(uid)) this.#failed.add(uid)
    else this.#failed.delete(uid)
  }

  released(machine: string, leases: ReadonlyArray<Lease>): void {
    for (const { uid, token } of leases) {
      this.note(`${machine} gives back ${uid} #${token}`)
      if (this.#held.get(uid)?.token === token) this.#held.delete(uid)
    }
  }

  /**
   * A crash of the store took leases back: nobody has them, and they were never more than looks. Those before them are there
   * again.
   */
  tookBack({ lost, back }: ReturnType<MemoryStore["crash"]>): void {
    for (const { uid, token } of lost) {
      this.note(`the store has forgotten #${token} of ${uid}`)
      this.counts.takenBack++
      this.#takenBack.add(token)
      if (this.#held.get(uid)?.token === token) this.#held.delete(uid)
    }
    for (const { uid, token } of back) {
      const run = this.#runs.get(token)
      if (run !== undefined) this.#held.set(uid, run)
    }
  }

  // The far end --------------------------------------------------------------------------------------------------

  wrote(machine: string, uid: string, fence: bigint, what: string): void {
    this.counts.writes++
    this.#writes.set(uid, this.writesTo(uid) + 1)
    this.note(`${machine} ${what} ${uid} #${fence}`)
    const run = this.#runs.get(fence)
    if (run?.uid !== uid || run.machine !== machine)
      throw new Violation(
        "one writer out there",
        `${machine} wrote ${uid} with the fence ${fence} of another run`
      )
    if (this.#takenBack.has(fence))
      throw new Violation(
        "one writer out there",
        `${machine} wrote ${uid} by #${fence}, which a crash took back`
      )
    const before = this.#wrote.get(uid) ?? 0n
    if (fence < before)
      throw new Violation("one writer out there", `${machine} wrote ${uid} with ${fence} after ${before} had`)
    this.#wrote.set(uid, fence)
    if (run.paused)
      throw new Violation(
        "paused is not touched",
        `${machine} ${what} ${uid} although it is paused (#${fence})`
      )
    if (this.#gone.has(uid))
      throw new Violation("what is gone leaves nothing behind", `${machine} ${what} ${uid} after it was gone`)
  }

  /** When its last run began, if it ever did. */
  lastTurn(uid: string): number {
    return this.#claimedAt.get(uid) ?? 0
  }

  writesTo(uid: string): number {
    return this.#writes.get(uid) ?? 0
  }

  // People -------------------------------------------------------------------------------------------------------

  /** Somebody changed what they want and waits from now on. */
  asked(uid: string): void {
    this.#failed.delete(uid)
    this.#askedDuring.add(uid)
    if (!this.#asked.has(uid)) this.#asked.set(uid, this.#timeline.now)
  }

  /** What must hold at any time. `bound` is how long a person may wait while nothing is wrong. */
  check(bound: number, longestPhase: number): void {
    const { now } = this.#timeline
    for (const [uid, since] of this.#asked) {
      const waited = now - Math.max(since, this.#excusedUntil)
      if (!this.#store.work.has(uid)) this.#asked.delete(uid)
      else if (waited > bound)
        throw new Violation(
          "nobody waits long",
          `${uid} was changed and not looked at for ${Math.round(waited)} ms`
        )
    }
    for (const row of this.#store.resources.values()) {
      if (!this.#store.work.has(row.uid))
        throw new Violation("nothing is lost", `${row.uid} has no queue entry`)
      if (row.deleting && row.phase !== "deleting")
        throw new Violation(
          "deletion is not taken back",
          `${row.uid} is to be deleted and is called ${row.phase}`
        )
      if (isFinal(row.phase) || row.deleting || this.#store.pausedNow(row) !== null) continue
      const lasted = now - Math.max(row.phaseSince, this.#excusedUntil)
      if (lasted > longestPhase)
        throw new Violation(
          "phases have deadlines",
          `${row.uid} is ${row.phase} for ${Math.round(lasted)} ms`
        )
    }
    for (const row of this.#store.work.values()) {
      if (!this.#store.resources.has(row.uid))
        throw new Violation("nothing is lost", `${row.uid} is queued and gone`)
    }
  }

  /** Nobody wakes it any more: it must have been looked at after the last change of what it waits for. */
  checkWaiting(): void {
    for (const { uid, waitingOn, leaseToken, dueAt } of this.#store.work.values()) {
      if (waitingOn === null || leaseToken !== null || dueAt <= this.#timeline.now) continue
      const looked = this.#claimedAt.get(uid) ?? 0
      const changed = this.#changedAt.get(waitingOn) ?? 0
      if (looked < changed)
        throw new Violation("waiting ones are woken", `${uid} did not look since ${waitingOn} changed`)
    }
  }
}
