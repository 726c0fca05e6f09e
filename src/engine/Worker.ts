/**
 * The loop: claim what is due, reconcile each in a fiber of its own, record results in batches, keep the leases
 * alive, and give everything back when the process stops.
 *
 * Level-triggered: a wake-up only says "look". A reconcile that ends without waiting costs no more than its fiber;
 * results of many are written in one statement.
 */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Queue from "effect/Queue"
import * as Schedule from "effect/Schedule"
import * as Semaphore from "effect/Semaphore"
import * as Stream from "effect/Stream"
import { boundedStore } from "./bounded-store.ts"
import { makeLanes } from "./lanes.ts"
import { readClocks } from "./lease-clock.ts"
import { isLook } from "./leases.ts"
import { makeLooks } from "./looks.ts"
import { EngineOptions, NewProcessId, ServedRegion } from "./options.ts"
import { Registry } from "./Reconciler.ts"
import { makeRuns } from "./runs.ts"
import { supervise } from "./supervise.ts"
import { WorkStore } from "./WorkStore.ts"

/** Announcements of work: each element means "something may be due". */
export class WorkSignal extends Context.Service<WorkSignal, Stream.Stream<unknown>>()(
  "svc/engine/WorkSignal"
) {}

/** Announcements of processes that come and go. */
export class MemberSignal extends Context.Service<MemberSignal, Stream.Stream<unknown>>()(
  "svc/engine/MemberSignal"
) {}

/** Runs reconciles in this process. Everything but `runOne` happens by itself. */
export class Worker extends Context.Service<
  Worker,
  {
    /**
     * Reconciles one resource now, whether due or not, and answers once the result is stored. False: somebody else
     * is at it, or it does not exist.
     */
    readonly runOne: (orgId: string, uid: string) => Effect.Effect<boolean>
  }
>()("svc/engine/Worker") {}

/** Reconciles on request that claim at once. */
const requestsAtOnce = 500

export const layer = Layer.effect(
  Worker,
  Effect.gen(function* () {
    const options = yield* EngineOptions
    const store = boundedStore(yield* WorkStore, options)
    const { registrations } = yield* Registry
    const region = yield* ServedRegion
    const member = { id: yield* yield* NewProcessId, region }
    const signal = yield* WorkSignal
    const members = yield* MemberSignal
    const clock = yield* Clock.Clock

    const wake = yield* Queue.sliding<void>(1)
    const lookAgain = yield* Queue.sliding<void>(1)
    const lookFound = yield* Queue.sliding<void>(1)
    const comings = yield* Queue.sliding<void>(1)
    const looks = makeLooks(registrations, store, options, member, clock, {
      found: () => Queue.offerUnsafe(lookFound, undefined),
      sooner: () => Queue.offerUnsafe(lookAgain, undefined)
    })
    const runs = yield* makeRuns(registrations, store, options, looks, clock, () => lanes.freed())
    const { running, recorder } = runs
    const lanes = yield* makeLanes(
      registrations,
      store,
      options,
      region,
      looks,
      runs,
      { wake, lookAgain },
      clock
    )
    let accepting = true
    /** One permit for each claim on request that is under way; stopping takes them all. */
    const requests = yield* Semaphore.make(requestsAtOnce)

    const startOne = (orgId: string, uid: string) =>
      Effect.gen(function* () {
        const asked = readClocks(clock)
        const claimed = Option.getOrUndefined(yield* store.claimOne(orgId, uid, options.leaseMs, region))
        if (claimed === undefined) return undefined
        const before = running.get(uid)
        const isRunning = before !== undefined && !isLook(before)
        if (!accepting || !registrations.has(claimed.kind) || isRunning) {
          yield* store.release([claimed])
          return undefined
        }
        runs.supersede(uid)
        const entry = runs.admit(claimed, asked)
        runs.start(entry)
        return entry
      }).pipe(requests.withPermit, Effect.uninterruptible)

    const recordRound = Effect.map(recorder.round, lanes.stored)

    const releaseAll = Effect.suspend(() => {
      // What could not be interrupted keeps its lease until that ends: it may still be at something.
      const ended = [...running.values()].filter(
        (entry) => !isLook(entry) && entry.fiber?.pollUnsafe() !== undefined
      )
      return Effect.timeoutOption(store.release(ended.map((entry) => entry.claimed)), "5 seconds").pipe(
        Effect.catchCause((cause) =>
          Effect.logWarning("leases could not be given back; they end by themselves", cause)
        )
      )
    })

    const refreshRound = Effect.andThen(
      looks.refresh,
      Effect.timeoutOption(Queue.take(comings), options.heartbeatMs)
    )
    const wakeRound = Effect.gen(function* () {
      if (!looks.anyFound()) yield* Queue.take(lookFound)
      yield* looks.wakeFound
    })

    // Finalizers run in reverse: claiming stops first, then the drain runs while heartbeat and recorder live.
    yield* Effect.forkScoped(
      Effect.repeat(supervise("extend its leases", runs.heartbeat), Schedule.spaced(options.heartbeatMs))
    )
    for (const _lane of [1, 2])
      yield* Effect.forkScoped(Effect.forever(supervise("record results", recordRound)))
    yield* Effect.forkScoped(Effect.forever(supervise("make due what looks found", wakeRound)))
    yield* Effect.addFinalizer(() =>
      Effect.gen(function* () {
        accepting = false
        const ends = Effect.suspend(() =>
          Effect.forEach([...running.values()], (entry) => Deferred.await(entry.done), { discard: true })
        )
        const asked = requests.withPermits(requestsAtOnce)(Effect.void)
        yield* Effect.timeoutOption(Effect.andThen(asked, ends), options.drainMs)
        const fibers = [...running.values()].flatMap((entry) =>
          entry.fiber === undefined ? [] : [entry.fiber]
        )
        yield* Effect.timeoutOption(Fiber.interruptAll(fibers), options.drainMs)
        yield* releaseAll
      })
    )
    yield* Effect.addFinalizer(() =>
      Effect.timeoutOption(looks.leave, "5 seconds").pipe(
        Effect.catchCause((cause) =>
          Effect.logWarning("the other processes learn only by and by that this one has gone", cause)
        )
      )
    )
    yield* Effect.forkScoped(Effect.forever(supervise("tell that this process is alive", refreshRound)))
    yield* Effect.forkScoped(
      supervise(
        "hear of processes",
        Stream.runForEach(members, () => Effect.sync(() => Queue.offerUnsafe(comings, undefined)))
      )
    )
    yield* Effect.forkScoped(
      supervise(
        "hear of work",
        Stream.runForEach(signal, () => lanes.poke)
      )
    )
    for (const _lane of [1, 2])
      yield* Effect.forkScoped(Effect.forever(supervise("claim work", lanes.claimRound)))
    yield* Effect.forkScoped(Effect.forever(supervise("claim urgent work", lanes.urgentRound)))
    // Loading takes the store about as long as this process takes to look: with two, it would wait for the store.
    for (const _lane of [1, 2, 3, 4])
      yield* Effect.forkScoped(Effect.forever(supervise("look at what is settled", lanes.lookRound)))

    return Worker.of({
      runOne: (orgId, uid) =>
        Effect.gen(function* () {
          // What runs already may have looked before the caller's reason arose: it is waited for and does not count.
          const before = running.get(uid)
          if (before !== undefined) yield* Deferred.await(before.done)
          if (!accepting || running.has(uid)) return false
          const entry = yield* startOne(orgId, uid)
          if (entry === undefined) return false
          yield* Deferred.await(entry.done)
          return true
        }).pipe(
          Effect.catchCause((cause) =>
            Cause.hasInterruptsOnly(cause)
              ? Effect.failCause(cause as Cause.Cause<never>)
              : Effect.as(
                  Effect.logWarning("a reconcile on request could not run; the engine takes it up", cause),
                  false
                )
          )
        )
    })
  })
)
