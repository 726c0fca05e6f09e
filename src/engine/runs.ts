/** What runs in this process: every lease, until its result is stored, and every look. */
import type * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { LeaseGuard } from "./external-call.ts"
import { type ClockReading, readClocks } from "./lease-clock.ts"
import { isLook, makeLeases, type Running } from "./leases.ts"
import type { Looks } from "./looks.ts"
import * as metrics from "./metrics.ts"
import type { EngineOptions } from "./options.ts"
import type { Registration } from "./Reconciler.ts"
import { look, reconcile } from "./reconcile.ts"
import { makeRecorder } from "./recorder.ts"
import type { Claimed, WorkStore } from "./WorkStore.ts"

/** Ends a look that begins to change something: a reconcile under a lease is to do that. */
const touchedByLook = Effect.die(new Error("a look must not change anything"))

export type Runs = Effect.Success<ReturnType<typeof makeRuns>>

export const makeRuns = Effect.fnUntraced(function* (
  registrations: ReadonlyMap<string, Registration>,
  store: WorkStore["Service"],
  options: EngineOptions,
  looks: Looks,
  clock: Clock.Clock,
  /** Told when one ends: there is room for another. */
  ended: () => void
) {
  const runFork = Effect.runForkWith(yield* Effect.context<never>())
  const running = new Map<string, Running>()
  let busy = 0

  const forget = (entry: Running) => {
    if (running.get(entry.claimed.uid) !== entry) return
    running.delete(entry.claimed.uid)
    Deferred.doneUnsafe(entry.done, Exit.void)
  }
  const finished = (entry: Running) => {
    if (!entry.busy) return
    entry.busy = false
    busy--
    ended()
  }

  const { drop, heartbeat, gate } = makeLeases(
    running,
    { finished, forget, lookLost: looks.note },
    store,
    options,
    clock
  )
  const recorder = yield* makeRecorder(
    running,
    { forget, keep: looks.keep, found: looks.note },
    registrations,
    store,
    options
  )

  /** Takes a lease into account; from here on heartbeats keep it. */
  const admit = (claimed: Claimed, heldSince: ClockReading): Running => {
    const startedAt = readClocks(clock)
    const done = Deferred.makeUnsafe<void>()
    const entry: Running = {
      claimed,
      startedAt,
      heldSince,
      lasting: false,
      fiber: undefined,
      busy: true,
      done
    }
    running.set(claimed.uid, entry)
    busy++
    return entry
  }
  const start = (entry: Running): void => {
    // Lost while it waited for its turn.
    if (!entry.busy) return
    metrics.started(entry.claimed)
    const registration = registrations.get(entry.claimed.kind)!
    if (isLook(entry)) startLook(entry, registration)
    else startRun(entry, registration)
  }
  const startRun = (entry: Running, registration: Registration): void => {
    const { claimed } = entry
    const startedAt = performance.now()
    entry.fiber = runFork(
      Effect.matchCause(
        Effect.provideService(reconcile(registration, claimed, options), LeaseGuard, gate(entry)),
        {
          onSuccess: (result) => {
            metrics.ended(claimed.kind, result, performance.now() - startedAt)
            finished(entry)
            // Its lease is lost: whatever it found out, it was too late.
            if (running.get(claimed.uid) !== entry) return
            recorder.add(looks.keeping(claimed.kind, result.recorded))
          },
          // Does not run when the fiber is interrupted: whoever does that sees to the rest.
          onFailure: (cause) => {
            finished(entry)
            if (running.get(claimed.uid) !== entry) return
            // There is nothing to record, as after a defect of the engine itself. Kept alive, the lease would hold the
            // resource for ever; let go, it ends, and that is pause enough.
            runFork(
              Effect.logWarning("a reconcile came to no result; tried again when its lease ends", cause)
            )
            forget(entry)
          }
        }
      )
    )
  }

  const startLook = (entry: Running, registration: Registration): void => {
    const { claimed } = entry
    const startedAt = performance.now()
    entry.fiber = runFork(
      Effect.map(Effect.provideService(look(registration, claimed), LeaseGuard, touchedByLook), (result) => {
        finished(entry)
        if (running.get(claimed.uid) !== entry) return
        forget(entry)
        if (result === undefined) return looks.note(claimed)
        metrics.ended(claimed.kind, result, performance.now() - startedAt)
        looks.keep(claimed, result.recorded.dueIn)
      })
    )
  }

  /** Ends what runs of a resource whose lease this process has got, and says whether that had a lease. */
  const supersede = (uid: string): boolean => {
    const before = running.get(uid)
    if (before !== undefined) drop(before)
    return before !== undefined && !isLook(before)
  }

  return { running, busy: () => busy, admit, start, supersede, heartbeat, recorder }
})
