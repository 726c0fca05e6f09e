/**
 * The loop behind everything that is done once per row of a table: mails, deliveries, cron runs, backups. It claims what
 * is due under a lease, runs each job in a fiber of its own, stores what became of it, and gives back what it could not
 * do. Any number of processes may run the same loop; Postgres is the only coordinator. (Resources have the engine,
 * which follows the same rules and knows more: generations, priorities, waiting.)
 *
 * What it guarantees, whatever the job is (shown by test/loops/suite.ts in memory and in Postgres,
 * with what each user of it has to do for that):
 * - A job of a process that was killed is taken over when its lease ends, and not before; one that is renewed is not.
 *   So a job runs at least once. Only the holder of a lease writes, which the port sees to with a fencing token.
 * - No more than `atOnce` run in this process, and no organization holds all of them: `fair-share.ts`.
 * - A wake-up begins a look at once; otherwise the next look is when something becomes due, and `lookMs` after the last
 *   at the latest, for a notification that was lost.
 * - No wait for the store is without end, and no failure of it ends the loop.
 * - When the scope closes, nothing new begins, running jobs get `drainMs` to end, and the others are interrupted and
 *   given back, so that another process need not wait for their leases to end.
 */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Metric from "effect/Metric"
import * as Queue from "effect/Queue"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { answered } from "#src/engine/answered.ts"
import { LeaseGuard } from "#src/engine/external-call.ts"
import { type ClockReading, readClocks, runningMs, sinceMs } from "#src/engine/lease-clock.ts"
import { supervise } from "#src/engine/supervise.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { makeFairShare, type Rooms } from "./fair-share.ts"

/** What a claim may take. */
export interface Room<Job> {
  readonly most: number
  /** Of these, how many of each organization. */
  readonly orgs: Rooms
  /** The jobs that this process holds. */
  readonly running: Iterable<Job>
}

/** A table of jobs as the loop sees it, and what is done with each. Times are in milliseconds. */
export interface LeasedLoop<Job, Result, R = never> {
  /** Label of the loop's metrics. */
  readonly name: string
  /** What it does, after "could not": "deliver webhooks". */
  readonly does: string
  /** The same for the same row, whoever claimed it. */
  readonly idOf: (job: Job) => string
  /** Who shares fairly. Absent: nobody, since all jobs are in the hands of one far end, such as a mail server. */
  readonly orgOf?: (job: Job) => string
  /** Jobs under way in this process. */
  readonly atOnce: number
  /** Jobs of one organization. Default: its fair share. */
  readonly mostOfOneOrg?: number
  /** Whether some of `atOnce` stay free for organizations that hold none. Default: true. */
  readonly reserve?: boolean
  /** Jobs that one claim takes. Default: as many as there is room for. */
  readonly batch?: number
  /** Claims at the same time: while one starts what it claimed, the other's is on its way. Default: 1. */
  readonly lanes?: number
  /** How long a claim holds without being renewed. A run that is not over by then is interrupted. */
  readonly leaseMs: number
  /** Between renewals. Default: a quarter of the lease. */
  readonly heartbeatMs?: number
  /** How long running jobs may go on when the process stops. Default: not at all. */
  readonly drainMs?: number
  /** How long jobs that are interrupted then may take to end; what does not keeps its lease. Default: 5 s. */
  readonly interruptMs?: number
  /** A look even if nobody said anything. Default: 30 s. */
  readonly lookMs?: number

  /** Leases jobs that are due, the longest waiting first, within the room. */
  readonly claim: (room: Room<Job>) => Effect.Effect<ReadonlyArray<Job>, StoreUnavailable>
  /** One job. What fails is part of the result; an error means that there is none, and the job rests until its lease ends. */
  readonly run: (job: Job) => Effect.Effect<Result, unknown, R>
  /** Stores what became of a job, if its lease still holds. Repeated when the store does not answer. */
  readonly settle: (job: Job, result: Result) => Effect.Effect<void, StoreUnavailable>
  /** Extends leases; answers the ids of those that hold. Absent: a run ends well before its lease. */
  readonly renew?: (jobs: ReadonlyArray<Job>) => Effect.Effect<ReadonlySet<string>, StoreUnavailable>
  /** Gives jobs back that were interrupted. */
  readonly release: (jobs: ReadonlyArray<Job>) => Effect.Effect<void, StoreUnavailable>
  /** Until the next job is due, or its lease ends; none or less: one is due. Undefined: nothing waits. */
  readonly nextIn: Effect.Effect<number | undefined, StoreUnavailable>
  /** Each element says that something may be due. */
  readonly wake?: Stream.Stream<unknown>
}

export interface Leased {
  /** Looks for due jobs now. */
  readonly look: Effect.Effect<void>
  /** Interrupts the run of a job that somebody else has ended, and stores nothing of it. */
  readonly stop: (id: string) => Effect.Effect<void>
}

/** What is due and could not be claimed is in somebody's hands, or its organization has no room: a short rest. */
const crowdedMs = 1_000
const shortestMs = 50
/** For each step of stopping that could not be cut short otherwise. */
const stopMs = 5_000

const underWay = Metric.gauge("svc_loop_jobs", { description: "Jobs under way in this process, by loop" })
const ended = Metric.counter("svc_loop_jobs_total", {
  description:
    "Jobs by loop and outcome: settled, unsettled (the store did not take the result), failed (no result), lost (the lease), released",
  incremental: true
})

interface Held<Job> {
  readonly id: string
  readonly job: Job
  readonly org: string
  /** When the store was last asked for the lease, and gave it. */
  heldSince: ClockReading
  fiber: Fiber.Fiber<void> | undefined
  /** Its run is over, and the store is asked to take the result. */
  settling: boolean
  readonly done: Deferred.Deferred<void>
}

/** Runs the loop until the scope closes. */
export const leased = <Job, Result, R = never>(
  port: LeasedLoop<Job, Result, R>
): Effect.Effect<Leased, never, R | Scope.Scope> =>
  Effect.gen(function* () {
    const { name, does, leaseMs, batch = port.atOnce, lanes = 1, lookMs = 30_000 } = port
    const fair = port.orgOf !== undefined && port.reserve !== false
    const shares = makeFairShare(port.atOnce, { mostOfOne: port.mostOfOneOrg, reserve: fair })
    const clock = yield* Clock.Clock
    /** By id: every lease that this process holds. */
    const running = new Map<string, Held<Job>>()
    const woken = yield* Queue.sliding<void>(lanes)
    const stopping = yield* Deferred.make<void>()
    let interrupting = false

    const look = () => {
      for (let lane = 0; lane < lanes; lane++) Queue.offerUnsafe(woken, undefined)
    }
    const holds = (held: Held<Job>) => running.get(held.id) === held
    /**
     * Its lease may have ended, as far as this process can tell; the margin is for clocks that do not run alike. Where
     * the store can be asked, the wall clock counts too, which goes on while a machine sleeps. Where it cannot, somebody who
     * sets that clock must not cost every job its result, and the store refuses the result of a lease that has ended.
     */
    const age = port.renew === undefined ? runningMs : sinceMs
    const inDoubt = (held: Held<Job>) => age(clock, held.heldSince) > leaseMs * (5 / 6)
    const count = (outcome: string, by = 1) =>
      Metric.update(Metric.withAttributes(ended, { loop: name, outcome }), by)
    const gauge = Effect.suspend(() =>
      Metric.update(Metric.withAttributes(underWay, { loop: name }), running.size)
    )

    const forget = (held: Held<Job>) => {
      if (!holds(held)) return
      running.delete(held.id)
      shares.giveBack(held.org)
      Deferred.doneUnsafe(held.done, Exit.void)
      look()
    }
    /** Ends the run: nothing of it is stored. */
    const drop = (held: Held<Job>) => {
      forget(held)
      held.fiber?.interruptUnsafe()
    }
    const lose = (held: Held<Job>) =>
      Effect.andThen(
        Effect.sync(() => drop(held)),
        count("lost")
      )

    const settle = (held: Held<Job>, result: Result) =>
      Effect.suspend(() => {
        if (!holds(held)) return Effect.void
        held.settling = true
        return Effect.suspend(() => port.settle(held.job, result)).pipe(
          answered(`store what became of a job (${does})`),
          Effect.retry({
            schedule: Schedule.min([Schedule.exponential("100 millis"), Schedule.spaced("5 seconds")]).pipe(
              Schedule.jittered
            ),
            while: () => !interrupting && holds(held) && !inDoubt(held)
          }),
          Effect.matchCauseEffect({
            onSuccess: () => count("settled"),
            onFailure: (cause) => {
              const label = `what became of ${held.id} was not stored: could not ${does}`
              return Effect.andThen(
                count("unsettled"),
                Cause.hasFails(cause)
                  ? Effect.logWarning(label, cause)
                  : Effect.logError(`a fault of the program: ${label}`, cause)
              )
            }
          }),
          Effect.ensuring(Effect.sync(() => forget(held)))
        )
      })

    const work = (held: Held<Job>) =>
      Effect.uninterruptibleMask((restore) =>
        Effect.matchCauseEffect(restore(Effect.suspend(() => port.run(held.job))), {
          onSuccess: (result) => settle(held, result),
          onFailure: (cause) => {
            // Whoever interrupted it sees to the rest.
            if (interrupting || !holds(held)) return Effect.void
            // Kept alive, the lease would hold the job for ever; let go, it ends, and that is pause enough.
            forget(held)
            const label = `${held.id} came to no result: could not ${does}`
            return Effect.andThen(
              count("failed"),
              Cause.hasFails(cause)
                ? Effect.logWarning(`${label}; tried again when its lease ends`, cause)
                : Effect.logError(`a fault of the program: ${label}; tried again when its lease ends`, cause)
            )
          }
        })
      ).pipe(Effect.ensuring(gauge))

    const begin = (job: Job, heldSince: ClockReading) =>
      Effect.gen(function* () {
        const id = port.idOf(job)
        const before = running.get(id)
        // Its lease ended and nobody here knew yet.
        if (before !== undefined) yield* lose(before)
        const done = Deferred.makeUnsafe<void>()
        const org = port.orgOf?.(job) ?? ""
        const held: Held<Job> = { id, job, org, heldSince, fiber: undefined, settling: false, done }
        running.set(id, held)
        shares.take(held.org)
        // Answered so late that somebody else may have it by now: it is not begun, and its lease ends.
        if (inDoubt(held)) return yield* lose(held)
        const guard = Effect.suspend(() => (holds(held) && !inDoubt(held) ? Effect.void : Effect.interrupt))
        held.fiber = yield* Effect.forkDetach(Effect.provideService(work(held), LeaseGuard, guard))
      })

    /** Places that claims which are under way may fill. */
    let promised = 0
    // Claiming and beginning are one step: nothing interrupts between taking a lease and running what holds it.
    const claim = (most: number) =>
      Effect.gen(function* () {
        promised += most
        const asked = readClocks(clock)
        const jobs = yield* Effect.suspend(() =>
          port.claim({
            most,
            orgs: shares.rooms(promised - most),
            running: [...running.values()].map(({ job }) => job)
          })
        ).pipe(
          answered(does),
          Effect.raceFirst(
            Effect.as(
              Effect.andThen(Deferred.await(stopping), Effect.sleep(stopMs)),
              [] as ReadonlyArray<Job>
            )
          )
        )
        yield* Effect.forEach(jobs, (job) => begin(job, asked), { discard: true })
        yield* gauge
        return jobs.length
      }).pipe(
        Effect.uninterruptible,
        Effect.ensuring(
          Effect.sync(() => {
            promised -= most
          })
        )
      )
    const rest = (ms: number) => Effect.timeoutOption(Queue.take(woken), ms)
    const round = Effect.gen(function* () {
      const free = shares.free() - promised
      // Never all that is left: it is for organizations that hold none yet.
      const most = Math.min(batch, fair ? Math.ceil(free / 2) : free)
      if (most <= 0 || shares.rooms(promised).others <= 0) return yield* rest(lookMs)
      const claimed = yield* claim(most)
      // When places are short, a few at a time would cost a claim each: some more become free meanwhile.
      if (claimed >= most) return most < batch ? yield* Effect.sleep(shortestMs) : undefined
      const next = (yield* answered(`tell what is due next (${does})`)(port.nextIn)) ?? lookMs
      if (next <= 0 && claimed > 0) return
      yield* rest(next <= 0 ? crowdedMs : Math.max(shortestMs, Math.min(lookMs, next)))
    })

    const heartbeat = Effect.gen(function* () {
      const all = [...running.values()]
      const { renew } = port
      if (renew !== undefined && all.length > 0) {
        const asked = readClocks(clock)
        const kept = yield* renew(all.map(({ job }) => job)).pipe(
          // In time for another try before the leases end.
          answered(`renew leases (${does})`, leaseMs / 2)
        )
        for (const held of all) {
          if (kept.has(held.id)) held.heldSince = asked
          // Settled meanwhile, or lost.
          else if (holds(held) && !held.settling) yield* lose(held)
        }
      }
    })
    // Without the store nobody extends the leases: before they end this process must not act any more.
    const loseDoubtful = Effect.suspend(() =>
      Effect.forEach([...running.values()].filter(inDoubt), lose, { discard: true })
    )

    const drain = Effect.gen(function* () {
      const ends = Effect.forEach([...running.values()], ({ done }) => Deferred.await(done), {
        discard: true
      })
      yield* Effect.timeoutOption(ends, port.drainMs ?? 0)
      interrupting = true
      const left = [...running.values()]
      yield* Effect.timeoutOption(
        Fiber.interruptAll(left.flatMap(({ fiber }) => (fiber === undefined ? [] : [fiber]))),
        port.interruptMs ?? stopMs
      )
      // What could not be interrupted keeps its lease until that ends: it may still be at something.
      const over = left.filter((held) => holds(held) && held.fiber?.pollUnsafe() !== undefined)
      if (over.length === 0) return
      yield* answered(`take jobs back (${does})`, stopMs)(port.release(over.map(({ job }) => job)))
      yield* count("released", over.length)
    }).pipe(
      Effect.catchCause((cause) =>
        Effect.logWarning(`jobs could not be given back; their leases end: could not ${does}`, cause)
      )
    )

    // Finalizers run in reverse: claiming stops first, then the drain runs while leases are still renewed.
    yield* Effect.forkScoped(
      Effect.repeat(
        supervise(`keep what it has claimed, to ${does}`, heartbeat),
        Schedule.spaced(port.heartbeatMs ?? leaseMs / 4)
      )
    )
    yield* Effect.forkScoped(Effect.repeat(loseDoubtful, Schedule.spaced(leaseMs / 12)))
    yield* Effect.addFinalizer(() => drain)
    if (port.wake !== undefined) {
      yield* Effect.forkScoped(
        supervise(
          `hear what there is to do, to ${does}`,
          Stream.runForEach(port.wake, () => Effect.sync(look))
        )
      )
    }
    for (let lane = 0; lane < lanes; lane++) {
      yield* Effect.forkScoped(Effect.forever(supervise(does, round)))
    }
    yield* Effect.addFinalizer(() => Deferred.succeed(stopping, undefined))

    return {
      look: Effect.sync(look),
      stop: (id) =>
        Effect.sync(() => {
          const held = running.get(id)
          if (held !== undefined) drop(held)
        })
    }
  })
