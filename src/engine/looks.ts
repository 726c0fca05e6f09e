/**
 * Looks at what is settled, by the process that its slot belongs to (`members.ts`), from a schedule in memory, without a
 * lease. Most looks find what was there before; these write nothing at all. What finds anything else makes the resource
 * due, and then it is reconciled under a lease like everything that changes something.
 *
 * So nothing depends on who looks: two processes that both believe a slot theirs look twice, and a resource that all have
 * lost sight of comes back by the queue (`keptForMs`).
 */
import type * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Random from "effect/Random"
import { anyPool } from "#schemas/placement.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { type ClockReading, readClocks, sinceMs } from "./lease-clock.ts"
import { LookSchedule } from "./look-schedule.ts"
import { slotCount, slotOf, slotsOf } from "./members.ts"
import * as metrics from "./metrics.ts"
import type { EngineOptions } from "./options.ts"
import { driftDelay } from "./outcome-types.ts"
import type { Registration } from "./Reconciler.ts"
import type { Kept, Member, Recorded, WorkStore } from "./WorkStore.ts"

/** Slots that are loaded in one statement: bounds what is in memory twice. */
const slotsAtOnce = 8

interface Gained {
  readonly pool: string
  readonly slots: ReadonlyArray<number>
  /** Over the drift interval, instead of at once. */
  readonly spread: boolean
  readonly from: number
}

export interface Looks {
  readonly schedule: LookSchedule
  /** Milliseconds on the clock of the schedule. */
  readonly now: () => number
  /** The result, with who looks next: this process, if the resource is settled and its slot is this one's. */
  readonly keeping: (kind: string, recorded: Recorded) => Recorded
  /** Looks again after so long; whoever has the slot now does. */
  readonly keep: (kept: Kept, dueIn: number) => void
  /** Says that this process is alive, and takes over what is its own now. */
  readonly refresh: Effect.Effect<void, StoreUnavailable>
  /** Stores what was found by looks, and what is no longer this process's to keep. */
  readonly wakeFound: Effect.Effect<void, StoreUnavailable>
  readonly anyFound: () => boolean
  /** It could not be looked at: it is to be after so long, by whoever has the slot when this process knows again. */
  readonly again: (kept: Kept, inMs: number) => void
  /** Something was found: a reconcile must see to it. */
  readonly note: (resource: Pick<Kept, "orgId" | "uid">) => void
  readonly leave: Effect.Effect<void, StoreUnavailable>
}

export const makeLooks = (
  registrations: ReadonlyMap<string, Registration>,
  store: WorkStore["Service"],
  options: EngineOptions,
  /** This process. */
  member: Member,
  clock: Clock.Clock,
  signals: {
    /** There is something for {@link Looks.wakeFound} to do. */
    readonly found: () => void
    /** The first look is due sooner than before. */
    readonly sooner: () => void
  }
): Looks => {
  const { region } = member
  const schedule = new LookSchedule()
  const now = () => Number(clock.monotonicTimeNanosUnsafe() / 1_000_000n)
  /** By pool. */
  let slots = new Map<string, ReadonlySet<number>>()
  let refreshedAt: ClockReading | undefined
  let left = false
  /** To be loaded, from some time on. */
  const gained: Array<Gained> = []
  const found = new Map<string, Pick<Kept, "orgId" | "uid">>()

  const poolOf = (kind: string) => (registrations.get(kind)?.kind.placement === "host" ? region : anyPool)
  const isCurrent = () =>
    refreshedAt !== undefined && !left && sinceMs(clock, refreshedAt) < options.leaseMs * (5 / 6)
  const isOwn = ({ uid, kind }: Pick<Kept, "uid" | "kind">) =>
    slots.get(poolOf(kind))?.has(slotOf(uid)) ?? false

  const plan = (kept: Kept, dueAt: number) => {
    const isFirst = dueAt < (schedule.nextAt ?? Number.POSITIVE_INFINITY)
    schedule.put(kept, dueAt)
    if (isFirst) signals.sooner()
  }

  const load = Effect.fnUntraced(function* ({ pool, slots: wanted, spread }: Gained) {
    for (let from = 0; from < wanted.length; from += slotsAtOnce) {
      for (const row of yield* store.kept(pool, wanted.slice(from, from + slotsAtOnce))) {
        const registration = registrations.get(row.kind)
        if (registration === undefined || schedule.has(row.uid) || !isOwn(row)) continue
        // Nothing is stored of when it was looked at last: some time within the interval, and so it goes on.
        const wait = spread ? driftDelay(registration, 0.5) * (yield* Random.next) : 0
        plan(row, now() + wait)
      }
    }
  })

  const refresh = Effect.gen(function* () {
    const asked = readClocks(clock)
    const alive = yield* store.join(member, options.leaseMs)
    // Whoever slept for so long was not among the living: others kept what was settled meanwhile, in its slots as well.
    const wasAway = !isCurrent()
    const before: typeof slots = wasAway ? new Map() : slots
    const serving = new Map([
      [anyPool, alive],
      [region, alive.filter((one) => one.region === region)]
    ])
    slots = new Map([...serving].map(([pool, members]) => [pool, slotsOf(member.id, members)]))
    refreshedAt = asked
    const hasLost = ([pool, mine]: [string, ReadonlySet<number>]) =>
      [...mine].some((slot) => slots.get(pool)?.has(slot) !== true)
    if (wasAway || [...before].some(hasLost)) schedule.dropUnless(isOwn)
    for (const [pool, mine] of slots) {
      const more = [...mine].filter((slot) => before.get(pool)?.has(slot) !== true)
      if (more.length === 0) continue
      // Where nobody else has looked, much may have happened: after the machine was down, say.
      const spread = (serving.get(pool)?.length ?? 0) > 1
      gained.push({ pool, slots: more, spread, from: now() })
      // Whoever had them may not know yet that they are another's, and keep something there until it does.
      gained.push({ pool, slots: more, spread: true, from: now() + 2 * options.leaseMs })
    }
    for (const one of gained.filter(({ from }) => from <= now())) {
      yield* load(one)
      gained.splice(gained.indexOf(one), 1)
    }
    metrics.looksKept(schedule.size)
  })

  const note = (resource: Pick<Kept, "orgId" | "uid">) => {
    found.set(resource.uid, resource)
    signals.found()
  }

  return {
    schedule,
    now,
    keeping: (kind, recorded) => {
      const { change, lease, waitingOn } = recorded
      const settled = change === undefined || (change.settled && !change.gone)
      return settled && waitingOn === null && isCurrent() && isOwn({ kind, uid: lease.uid })
        ? // What was recorded together does not come back together.
          { ...recorded, keptForMs: (options.keptForMs * (1 + slotOf(lease.uid) / slotCount)) / 2 }
        : recorded
    },
    keep: (kept, dueIn) => {
      if (left) return
      if (isCurrent() && isOwn(kept)) plan(kept, now() + dueIn)
      // The slot went to another process meanwhile, which may not have heard of this one.
      else note(kept)
    },
    refresh,
    note,
    again: (kept, inMs) => {
      if (!left) plan(kept, now() + inMs)
    },
    anyFound: () => found.size > 0,
    wakeFound: Effect.suspend(() => {
      const all = [...found.values()].slice(0, 1_000)
      return all.length === 0
        ? Effect.void
        : Effect.map(store.wake(all), () => {
            for (const one of all) if (found.get(one.uid) === one) found.delete(one.uid)
          })
    }),
    leave: Effect.suspend(() => {
      left = true
      return store.leave(member.id)
    })
  }
}
