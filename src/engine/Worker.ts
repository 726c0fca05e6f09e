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
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Latch from "effect/Latch"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Queue from "effect/Queue"
import * as Schedule from "effect/Schedule"
import * as Semaphore from "effect/Semaphore"
import * as Stream from "effect/Stream"
import { boundedStore } from "./bounded-store.ts"
import { LeaseGuard } from "./external-call.ts"
import { type ClockReading, readClocks } from "./lease-clock.ts"
import { isLook, makeLeases, type Running } from "./leases.ts"
import { makeLooks } from "./looks.ts"
import * as metrics from "./metrics.ts"
import { EngineOptions, NewProcessId, ServedRegion } from "./options.ts"
import { type Registration, Registry } from "./Reconciler.ts"
import { look, reconcile } from "./reconcile.ts"
import { makeRecorder } from "./recorder.ts"
import { makeRooms, sliceSize } from "./rooms.ts"
import { supervise } from "./supervise.ts"
import { type Claimed, type KindRoom, WorkStore } from "./WorkStore.ts"

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

/** Milliseconds that routine looks may be late, so that many begin together and are loaded by one statement. */
const lookTickMs = 100

/** Reconciles on request that claim at once. */
const requestsAtOnce = 500
/** Milliseconds for which one part of routine work lets others go first, at most. */
const giveWayMs = 25
/** Milliseconds after an announcement for which another is expected. */
const askedMs = 1_000

/** Ends a look that begins to change something: a reconcile under a lease is to do that. */
const touchedByLook = Effect.die(new Error("a look must not change anything"))

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
    const runFork = Effect.runForkWith(yield* Effect.context<never>())

    /** What runs in this process: every lease, until its result is stored, and every look. */
    const running = new Map<string, Running>()
    const wake = yield* Queue.sliding<void>(1)
    const lookAgain = yield* Queue.sliding<void>(1)
    const lookFound = yield* Queue.sliding<void>(1)
    const comings = yield* Queue.sliding<void>(1)
    const alarm = yield* Queue.sliding<void>(1)
    /** Closed while something that may have been asked for is not begun yet. */
    const calm = Latch.makeUnsafe(true)
    /** Between parts of routine work: whoever asked for something goes first, and does not keep the rest for long. */
    const giveWay = Effect.suspend(() =>
      calm.isOpen() ? Effect.yieldNow : Effect.asVoid(Effect.timeoutOption(calm.await, giveWayMs))
    )
    let askedAt = Number.NEGATIVE_INFINITY
    const isAsked = () => clock.currentTimeMillisUnsafe() - askedAt < askedMs
    const poke = Effect.sync(() => {
      askedAt = clock.currentTimeMillisUnsafe()
      calm.closeUnsafe()
      Queue.offerUnsafe(alarm, undefined)
      Queue.offerUnsafe(wake, undefined)
    })
    const turn = yield* Semaphore.make(1)
    const idle = yield* Semaphore.make(1)
    let busy = 0
    let accepting = true
    /** One permit for each claim on request that is under way; stopping takes them all. */
    const requests = yield* Semaphore.make(requestsAtOnce)

    const forget = (entry: Running) => {
      if (running.get(entry.claimed.uid) !== entry) return
      running.delete(entry.claimed.uid)
      Deferred.doneUnsafe(entry.done, Exit.void)
    }
    const finished = (entry: Running) => {
      if (!entry.busy) return
      entry.busy = false
      busy--
      Queue.offerUnsafe(wake, undefined)
      Queue.offerUnsafe(lookAgain, undefined)
    }
    const looks = makeLooks(registrations, store, options, member, clock, {
      found: () => Queue.offerUnsafe(lookFound, undefined),
      sooner: () => Queue.offerUnsafe(lookAgain, undefined)
    })

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
        Effect.map(
          Effect.provideService(look(registration, claimed), LeaseGuard, touchedByLook),
          (result) => {
            finished(entry)
            if (running.get(claimed.uid) !== entry) return
            forget(entry)
            if (result === undefined) return looks.note(claimed)
            metrics.ended(claimed.kind, result, performance.now() - startedAt)
            looks.keep(claimed, result.recorded.dueIn)
          }
        )
      )
    }

    const rooms = makeRooms(running, () => busy, isAsked, registrations, options, region)

    /** Ends what runs of a resource whose lease this process has got, and says whether that had a lease. */
    const supersede = (uid: string): boolean => {
      const before = running.get(uid)
      if (before !== undefined) drop(before)
      return before !== undefined && !isLook(before)
    }

    const claimSome = (urgent: boolean) =>
      Effect.gen(function* () {
        const wanted = recorder.isBehind() ? [] : rooms.free(urgent)
        const asked = readClocks(clock)
        const claimed = wanted.length === 0 ? [] : yield* store.claim(wanted, options.leaseMs)
        // A lease that ended and came back to this very process: the old run may write no more, and ends first.
        const came = Map.groupBy(claimed, (one) => supersede(one.uid))
        const { mine, surplus } = rooms.within(came.get(false) ?? [], urgent)
        surplus.push(...(came.get(true) ?? []))
        return { wanted, claimed, surplus, entries: mine.map((one) => admit(one, asked)) }
      })
    const startAll = Effect.fnUntraced(function* (
      entries: ReadonlyArray<Running>,
      pause: Effect.Effect<void>
    ) {
      for (let from = 0; from < entries.length; from += sliceSize) {
        yield* pause
        for (const entry of entries.slice(from, from + sliceSize)) start(entry)
      }
    })
    // Not to be interrupted between taking a lease and starting what holds it.
    const startSome = (claiming: ReturnType<typeof claimSome>, pause: Effect.Effect<void>) =>
      Effect.uninterruptible(
        Effect.gen(function* () {
          const { wanted, claimed, entries, surplus } = yield* claiming
          yield* startAll(entries, pause)
          // First: these leases are nobody's, and a store that fails below must not keep them.
          if (surplus.length > 0) yield* store.release(surplus)
          for (const { claimed: one } of entries) {
            // Creations that slipped past the deletion of what contains them.
            if (one.children !== null && one.children.notDeleting > 0)
              yield* store.cascade(one.orgId, one.uid)
          }
          const more = wanted.some(
            (room) => claimed.filter((one) => one.kind === room.kind).length >= room.room
          )
          return { wanted, more: more && surplus.length === 0 }
        })
      )
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
        supersede(uid)
        const entry = admit(claimed, asked)
        start(entry)
        return entry
      }).pipe(requests.withPermit, Effect.uninterruptible)
    // Two lanes take turns: while one starts what it claimed, the other's claim is on its way.
    const claimRound = Effect.flatMap(
      startSome(turn.withPermit(Effect.andThen(giveWay, claimSome(false))), giveWay),
      ({ wanted, more }) => (more ? Effect.void : idle.withPermit(rest(wanted)))
    )
    // What somebody asked for does not queue behind a large claim of routine looks.
    const urgentRound = Effect.andThen(
      Queue.take(alarm),
      startSome(claimSome(true), Effect.yieldNow).pipe(
        Effect.map(({ more }) => more && Queue.offerUnsafe(alarm, undefined)),
        Effect.ensuring(calm.open)
      )
    )

    /** Begins looks that are due, as far as there is room. */
    const lookRound = Effect.gen(function* () {
      const begun = yield* Effect.uninterruptible(beginLooks)
      if (begun > 0) return
      const next = looks.schedule.nextAt
      const pause = next === undefined ? options.pollMs : Math.min(options.pollMs, next - looks.now())
      yield* Effect.timeoutOption(Queue.take(lookAgain), Math.max(lookTickMs, pause))
    })
    const beginLooks = Effect.gen(function* () {
      if (!looks.schedule.hasDue(looks.now())) return 0
      const { rooms: free, most } = rooms.forLooks()
      const taken = looks.schedule.take(free, looks.now(), most)
      if (taken.length === 0) return 0
      yield* giveWay
      const asked = readClocks(clock)
      const loaded = yield* Effect.onError(store.look(taken), () =>
        Effect.sync(() => {
          for (const one of taken) looks.again(one, options.backoffMs[0])
        })
      )
      const lateBy = new Map(taken.map(({ uid, dueAt }): [string, number] => [uid, looks.now() - dueAt]))
      // What runs under a lease is looked at by that.
      const { mine, surplus } = rooms.within(
        loaded.flatMap((one) => (running.has(one.uid) ? [] : [{ ...one, lateBy: lateBy.get(one.uid) ?? 0 }])),
        false
      )
      for (const one of surplus) looks.keep(one, 0)
      const entries = mine.map((one) => admit(one, asked))
      yield* startAll(entries, giveWay)
      return entries.length
    })

    /** Waits for an announcement, for the next thing to become due, or for the safety net. */
    const rest = Effect.fnUntraced(function* (rooms: ReadonlyArray<KindRoom>) {
      const next = yield* store.nextDueIn(rooms)
      // What is due and could not be claimed now is in somebody's hands or over a share: a short pause, not none.
      const pause = Math.min(
        options.pollMs,
        Math.max(
          5,
          Option.getOrElse(next, () => options.pollMs)
        )
      )
      const woken = yield* Effect.timeoutOption(Queue.take(wake), rooms.length === 0 ? options.pollMs : pause)
      // Its time has come without a word, and routine claims may leave it to urgent ones.
      if (Option.isNone(woken) && Option.exists(next, (ms) => ms > 0)) Queue.offerUnsafe(alarm, undefined)
    })

    // Some may be due again at once: changed while they ran, or woken by what was just stored.
    const recordRound = Effect.map(recorder.round, () => Queue.offerUnsafe(wake, undefined))

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
      Effect.repeat(supervise("extend its leases", heartbeat), Schedule.spaced(options.heartbeatMs))
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
        Stream.runForEach(signal, () => poke)
      )
    )
    for (const _lane of [1, 2]) yield* Effect.forkScoped(Effect.forever(supervise("claim work", claimRound)))
    yield* Effect.forkScoped(Effect.forever(supervise("claim urgent work", urgentRound)))
    for (const _lane of [1, 2])
      yield* Effect.forkScoped(Effect.forever(supervise("look at what is settled", lookRound)))

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
