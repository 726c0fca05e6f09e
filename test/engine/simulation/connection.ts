/**
 * What lies between a process and the rest: every call takes time both ways, may be lost before it arrives or its
 * answer after, and goes on without the process that made it.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Queue from "effect/Queue"
import * as Stream from "effect/Stream"
import type { Claimed, WorkStore } from "#src/engine/WorkStore.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import type { MemoryStore } from "../memory-work-store.ts"
import type { Machine, Timeline } from "./machines.ts"
import type { Watcher } from "./watcher.ts"

/** Faults of the network and of the store, the same for all processes. */
export class Weather {
  /** Probability that one call fails, and that a notification is lost. */
  loss = 0
  /** Nothing answers until then. */
  outageUntil = 0
  /** The store has crashed and is not back until then: no call reaches it. */
  downUntil = 0
  /** What happens to the store once it has given leases, which nobody has heard of yet. */
  afterClaim: (() => void) | undefined

  strike(): void {
    const strike = this.afterClaim
    this.afterClaim = undefined
    strike?.()
  }
}

export class Connection {
  readonly #machine: Machine
  readonly #timeline: Timeline
  readonly #store: MemoryStore
  readonly #watcher: Watcher
  readonly #weather: Weather
  #announcements: Queue.Queue<void> | undefined
  #members: Queue.Queue<void> | undefined

  constructor(machine: Machine, store: MemoryStore, watcher: Watcher, weather: Weather) {
    this.#machine = machine
    this.#timeline = machine.timeline
    this.#store = store
    this.#watcher = watcher
    this.#weather = weather
  }

  #latency(): number {
    const { random } = this.#timeline
    return random.chance(this.#weather.loss) ? random.between(100, 8_000) : random.between(0.2, 4)
  }

  /** There and back. Interrupting it does not tell whether it happened. */
  #travel<A>(act: () => A, failure: () => A): Effect.Effect<A> {
    const { random } = this.#timeline
    return Effect.callback<A>((resume) => {
      let wanted = true
      const answer = (value: A) =>
        this.#timeline.after(this.#latency(), () =>
          this.#machine.deliver(() => resume(Effect.succeed(value)))
        )
      this.#timeline.after(this.#latency(), () => {
        if (this.#weather.downUntil > this.#timeline.now) return answer(failure())
        const undone = !wanted || this.#machine.state === "dead"
        if (undone && random.chance(0.5)) return
        const lost = this.#weather.outageUntil > this.#timeline.now || random.chance(this.#weather.loss)
        if (lost && random.chance(0.5)) return answer(failure())
        const value = act()
        answer(lost ? failure() : value)
      })
      return Effect.sync(() => {
        wanted = false
      })
    })
  }

  #ask<A>(act: () => A): Effect.Effect<A, StoreUnavailable> {
    return Effect.flatMap(
      this.#travel(
        (): Option.Option<A> => Option.some(act()),
        () => Option.none()
      ),
      Option.match({
        onNone: () => Effect.fail(new StoreUnavailable({ message: "The store did not answer" })),
        onSome: Effect.succeed
      })
    )
  }

  /** A call to the far end: it arrives, however late, but never later than that. */
  farCall<A>(act: () => A, longestMs = Number.POSITIVE_INFINITY): Effect.Effect<A> {
    return Effect.callback<A>((resume) => {
      this.#timeline.after(Math.min(this.#latency(), longestMs), () => {
        const value = act()
        this.#timeline.after(this.#latency(), () =>
          this.#machine.deliver(() => resume(Effect.succeed(value)))
        )
      })
    })
  }

  isReady(uid: string): Effect.Effect<boolean> {
    return Effect.orDie(
      this.#ask(() => {
        const row = this.#store.resources.get(uid)
        return row !== undefined && !row.deleting && row.phase === "ready"
      })
    )
  }

  /** Wakes the process some time later, or never. */
  announce(): void {
    if (this.#timeline.random.chance(this.#weather.loss * 3)) return
    this.#timeline.after(this.#latency(), () =>
      this.#machine.deliver(() => {
        if (this.#announcements !== undefined) Queue.offerUnsafe(this.#announcements, undefined)
      })
    )
  }

  announceMembers(): void {
    if (this.#timeline.random.chance(this.#weather.loss * 3)) return
    this.#timeline.after(this.#latency(), () =>
      this.#machine.deliver(() => {
        if (this.#members !== undefined) Queue.offerUnsafe(this.#members, undefined)
      })
    )
  }

  get memberSignal(): Stream.Stream<void> {
    return Stream.unwrap(
      Effect.map(Queue.sliding<void>(16), (queue) => {
        this.#members = queue
        return Stream.fromQueue(queue)
      })
    )
  }

  get signal(): Stream.Stream<void> {
    return Stream.unwrap(
      Effect.map(Queue.sliding<void>(16), (queue) => {
        this.#announcements = queue
        return Stream.fromQueue(queue)
      })
    )
  }

  get workStore(): WorkStore["Service"] {
    const { name } = this.#machine
    const store = this.#store
    const watcher = this.#watcher
    const arrived = (claimed: ReadonlyArray<Claimed>, leaseMs: number) => {
      watcher.claimed(name, claimed, leaseMs)
      if (claimed.length > 0) this.#weather.strike()
      return claimed
    }
    return {
      claim: (rooms, leaseMs) => this.#ask(() => arrived(store.claim(rooms, leaseMs), leaseMs)),
      claimOne: (orgId, uid, leaseMs, pool) =>
        this.#ask(() =>
          Option.flatMap(store.claimOne(orgId, uid, leaseMs, pool), (one) =>
            Option.fromUndefinedOr(arrived([one], leaseMs)[0])
          )
        ),
      heartbeat: (leases, leaseMs) =>
        this.#ask(() => {
          const kept = store.heartbeat(leases, leaseMs)
          watcher.kept(kept, leaseMs)
          return kept
        }),
      record: (results) =>
        this.#ask(() => {
          const kept = store.record(results)
          watcher.recorded(name, results, kept)
          return kept
        }),
      release: (leases) =>
        this.#ask(() => {
          store.release(leases)
          watcher.released(name, leases)
        }),
      join: (member, leaseMs) => this.#ask(() => store.join(member, leaseMs)),
      leave: (id) => this.#ask(() => store.leave(id)),
      kept: (pool, slots) => this.#ask(() => store.kept(pool, slots)),
      look: (kept) =>
        this.#ask(() => {
          const loaded = store.look(kept)
          watcher.looked(name, loaded)
          return loaded
        }),
      wake: (found) => this.#ask(() => store.wake(found)),
      cascade: (orgId, uid) => this.#ask(() => store.cascade(orgId, uid)),
      nextDueIn: (work) => this.#ask(() => store.nextDueIn(work)),
      stats: this.#ask(() => store.stats())
    }
  }
}
