/**
 * The leases of what runs in this process: kept alive together, given up where a run hangs for good, and asked about
 * before a run changes anything out there. The first time they always are: a lease that was just given may be gone with a
 * crash of the store, and whoever only looks need not wait until it cannot.
 */
import type * as Clock from "effect/Clock"
import type * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"
import * as Semaphore from "effect/Semaphore"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { type ClockReading, readClocks, runningMs, sinceMs } from "./lease-clock.ts"
import * as metrics from "./metrics.ts"
import type { EngineOptions } from "./options.ts"
import { type Claimed, noLease, type WorkStore } from "./WorkStore.ts"

export interface Running {
  readonly claimed: Claimed
  readonly startedAt: ClockReading
  /** When the store was last asked for the lease, and gave it. */
  heldSince: ClockReading
  /** It has been extended: a crash of the store does not take it back. */
  lasting: boolean
  fiber: Fiber.Fiber<void> | undefined
  /** Counts against the room of its kind until the reconcile has ended. */
  busy: boolean
  readonly done: Deferred.Deferred<void>
}

/** It has no lease, and needs none: it changes nothing. */
export const isLook = ({ claimed }: Running): boolean => claimed.token === noLease

export interface Leases {
  /** Ends the run: whatever it still does is not recorded. */
  readonly drop: (entry: Running) => void
  /** Extends all leases, once. */
  readonly heartbeat: Effect.Effect<void, StoreUnavailable>
  /** Passes while the run holds its lease, and interrupts it otherwise. */
  readonly gate: (entry: Running) => Effect.Effect<void>
}

export const makeLeases = (
  /** What runs in this process. */
  running: ReadonlyMap<string, Running>,
  {
    finished,
    forget,
    lookLost
  }: {
    readonly finished: (entry: Running) => void
    readonly forget: (entry: Running) => void
    readonly lookLost: (claimed: Claimed) => void
  },
  store: WorkStore["Service"],
  options: EngineOptions,
  clock: Clock.Clock
): Leases => {
  const turn = Semaphore.makeUnsafe(1)
  const drop = (entry: Running) => {
    entry.fiber?.interruptUnsafe()
    finished(entry)
    forget(entry)
  }
  const lose = (entry: Running) => {
    metrics.leaseLost()
    drop(entry)
  }
  /** Its lease may have ended, as far as this process can tell; the margin is for clocks that do not run alike. */
  const inDoubt = (entry: Running) => sinceMs(clock, entry.heldSince) > options.leaseMs * (5 / 6)
  /** A run is a look and what follows from it, and each has its time: one that takes longer cannot be interrupted. */
  const clings = (entry: Running) =>
    entry.busy && runningMs(clock, entry.startedAt) > 2 * options.runMs + options.heartbeatMs
  const hangs = (entry: Running) => entry.busy && runningMs(clock, entry.startedAt) > options.runMs

  const extend = Effect.fnUntraced(function* (entries: ReadonlyArray<Running>) {
    const asked = readClocks(clock)
    const kept = yield* store.heartbeat(
      entries.map((entry) => entry.claimed),
      options.leaseMs
    )
    const tokens = new Map(kept.map(({ uid, token }) => [uid, token]))
    for (const entry of entries) {
      if (tokens.get(entry.claimed.uid) === entry.claimed.token) {
        entry.heldSince = asked
        entry.lasting = true
      }
      // Recorded meanwhile, or lost: in the second case whatever it still does must not be recorded.
      else if (running.get(entry.claimed.uid) === entry && entry.busy) lose(entry)
    }
  })
  const heartbeat = Effect.gen(function* () {
    for (const entry of [...running.values()]) {
      if (isLook(entry)) {
        if (!hangs(entry)) continue
        drop(entry)
        lookLost(entry.claimed)
        continue
      }
      if (!clings(entry)) continue
      const { kind, uid } = entry.claimed
      yield* Effect.logError(`a reconcile does not end; its lease does, and another one begins`, {
        kind,
        uid
      })
      lose(entry)
    }
    yield* extend([...running.values()].filter((entry) => !isLook(entry)))
  }).pipe(
    // Without the store nobody extends the leases: after their time this process must not act any more.
    Effect.tapError(() =>
      Effect.sync(() => {
        for (const entry of [...running.values()])
          if (entry.busy && !isLook(entry) && inDoubt(entry)) drop(entry)
      })
    )
  )
  /** Runs that wait until theirs is extended. What comes while one statement is under way goes with the next. */
  const asking = new Set<Running>()
  const confirm = (entry: Running) =>
    Effect.suspend(() => {
      asking.add(entry)
      const since = entry.heldSince
      return turn.withPermit(
        Effect.suspend(() => (entry.heldSince === since ? extend([...asking]) : Effect.void))
      )
    }).pipe(Effect.ensuring(Effect.sync(() => asking.delete(entry))))
  const gate = (entry: Running): Effect.Effect<void> =>
    Effect.gen(function* () {
      const holds = () => running.get(entry.claimed.uid) === entry
      // An answer may come so late that the lease which it gives has ended: a process can sleep while it waits for one.
      while (holds() && (!entry.lasting || inDoubt(entry)))
        yield* Effect.catch(confirm(entry), () => Effect.sync(() => drop(entry)))
      if (!holds()) return yield* Effect.interrupt
    })

  return { drop, heartbeat, gate }
}
