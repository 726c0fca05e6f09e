/**
 * How runs begin: routine claims, claims of what somebody asked for, and looks. Each of them is a round, which is repeated
 * for as long as the process runs.
 */
import type * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import * as Option from "effect/Option"
import * as Queue from "effect/Queue"
import * as Semaphore from "effect/Semaphore"
import { readClocks } from "./lease-clock.ts"
import type { Running } from "./leases.ts"
import type { Looks } from "./looks.ts"
import type { EngineOptions } from "./options.ts"
import type { Registration } from "./Reconciler.ts"
import { leaveMs, makeRooms, sliceSize } from "./rooms.ts"
import type { Runs } from "./runs.ts"
import type { WorkStore } from "./WorkStore.ts"

/** Milliseconds that routine looks may be late, so that many begin together and are loaded by one statement. */
const lookTickMs = 100
/** Milliseconds for which one part of routine work lets others go first, at most. */
const giveWayMs = 25
/** Milliseconds for which what was asked for waits for what was begun before it, so that many are claimed at once. */
const groupMs = 10
/** Milliseconds after an announcement for which another is expected. */
const askedMs = 1_000

/** Told from elsewhere: that something may be due, and that looks may be. */
export interface Wakes {
  readonly wake: Queue.Queue<void>
  readonly lookAgain: Queue.Queue<void>
}

export const makeLanes = Effect.fnUntraced(function* (
  registrations: ReadonlyMap<string, Registration>,
  store: WorkStore["Service"],
  options: EngineOptions,
  region: string,
  looks: Looks,
  { running, busy, admit, start, supersede, recorder }: Runs,
  { wake, lookAgain }: Wakes,
  clock: Clock.Clock
) {
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
  /** Something that was asked for may have found no room. */
  let crowded = false
  /** What was asked for and begun last. As with small packets (RFC 896), what comes meanwhile goes together. */
  let group: { readonly begunAt: number; readonly entries: ReadonlyArray<Running> } | undefined
  const groupEnded = Latch.makeUnsafe(true)
  const begun = (entries: ReadonlyArray<Running>) => {
    if (entries.length === 0) return
    group = { begunAt: clock.currentTimeMillisUnsafe(), entries }
    groupEnded.closeUnsafe()
  }
  const turnOfGroup = Effect.suspend(() => {
    const ms = group === undefined ? 0 : group.begunAt + groupMs - clock.currentTimeMillisUnsafe()
    if (ms <= 0) return Effect.void
    // Routine work goes on meanwhile.
    calm.openUnsafe()
    return Effect.andThen(Effect.timeoutOption(groupEnded.await, ms), calm.close)
  })
  /** A run has ended: there is room for another. */
  const freed = () => {
    if (group?.entries.every(({ busy }) => !busy) === true) {
      group = undefined
      groupEnded.openUnsafe()
    }
    Queue.offerUnsafe(wake, undefined)
    Queue.offerUnsafe(lookAgain, undefined)
    // Routine claims leave it for a while to the lane of what was asked for.
    if (crowded && isAsked()) Queue.offerUnsafe(alarm, undefined)
  }
  /** Results were stored: some may be due again at once, changed while they ran, or woken by what was stored. */
  const stored = () => {
    Queue.offerUnsafe(wake, undefined)
    if (isAsked()) Queue.offerUnsafe(alarm, undefined)
  }
  const turn = yield* Semaphore.make(1)
  const idle = yield* Semaphore.make(1)
  const rooms = makeRooms(running, busy, isAsked, registrations, options, region)

  const claimSome = (urgent: boolean) =>
    Effect.gen(function* () {
      const wanted = recorder.isBehind() ? [] : rooms.free(urgent)
      const asked = readClocks(clock)
      const claimed = wanted.length === 0 ? [] : yield* store.claim(wanted, options.leaseMs)
      // A lease that ended and came back to this very process: the old run may write no more, and ends first.
      const came = Map.groupBy(claimed, (one) => supersede(one.uid))
      const { mine, surplus } = rooms.within(came.get(false) ?? [], urgent)
      surplus.push(...(came.get(true) ?? []))
      const entries = mine.map((one) => admit(one, asked))
      if (urgent) begun(entries)
      return { wanted, claimed, surplus, entries }
    })
  const startAll = Effect.fnUntraced(function* (entries: ReadonlyArray<Running>, pause: Effect.Effect<void>) {
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
          if (one.children !== null && one.children.notDeleting > 0) yield* store.cascade(one.orgId, one.uid)
        }
        const full = wanted.some(
          (room) => claimed.filter((one) => one.kind === room.kind).length >= room.room
        )
        const isOver = surplus.length > 0
        const isShort =
          wanted.length < registrations.size || wanted.some(({ fullOrgs }) => fullOrgs.length > 0)
        return { more: full && !isOver, leftBehind: full || isOver || isShort }
      })
    )
  // Two lanes take turns: while one starts what it claimed, the other's claim is on its way.
  const claimRound = Effect.flatMap(
    startSome(turn.withPermit(Effect.andThen(giveWay, claimSome(false))), giveWay),
    ({ more, leftBehind }) => (more ? Effect.void : idle.withPermit(rest(leftBehind)))
  )
  // What somebody asked for does not queue behind a large claim of routine looks.
  const urgentRound = Effect.andThen(
    Effect.andThen(Queue.take(alarm), turnOfGroup),
    startSome(claimSome(true), Effect.yieldNow).pipe(
      Effect.flatMap(({ more, leftBehind }) => {
        crowded = leftBehind
        return more ? Queue.offer(alarm, undefined) : Effect.void
      }),
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
  const rest = Effect.fnUntraced(function* (leftBehind: boolean) {
    // What is announced is left to urgent claims so long; a routine one would find nothing.
    if (!leftBehind && isAsked()) yield* Effect.sleep(leaveMs)
    // Of this moment: whoever rests has waited for the other to be done with it.
    const free = rooms.free(false)
    const next = yield* store.nextDueIn(free)
    // What is due and could not be claimed now is in somebody's hands or over a share: a short pause, not none.
    const pause = Math.min(
      options.pollMs,
      Math.max(
        5,
        Option.getOrElse(next, () => options.pollMs)
      )
    )
    const woken = yield* Effect.timeoutOption(Queue.take(wake), free.length === 0 ? options.pollMs : pause)
    // Its time has come without a word, and routine claims may leave it to urgent ones.
    if (Option.isNone(woken) && Option.exists(next, (ms) => ms > 0)) Queue.offerUnsafe(alarm, undefined)
  })

  return { poke, freed, stored, claimRound, urgentRound, lookRound }
})
