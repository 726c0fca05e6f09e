/**
 * Stores what reconciles came to, in batches.
 *
 * A store that does not answer is asked again with the same batch. A batch that it refuses is halved until the result
 * that it cannot hold stands alone: the others are stored, and that one becomes a failed try that people can read of.
 * Otherwise one result would keep all later ones of this process from being stored, while heartbeats keep their leases.
 */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Queue from "effect/Queue"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { failureOutcome } from "./failure-outcome.ts"
import type { Running } from "./leases.ts"
import * as metrics from "./metrics.ts"
import type { EngineOptions } from "./options.ts"
import { type Registration, Retryable } from "./Reconciler.ts"
import { report } from "./report.ts"
import { type Claimed, type Lease, type Recorded, ResultsRefused, type WorkStore } from "./WorkStore.ts"

/** A record statement takes at most this many results. */
const batchSize = 128
/** The next look is by the backoff alone: to look again at once would find what the store refuses again. */
const never = Number.POSITIVE_INFINITY

export interface Recorder {
  readonly add: (result: Recorded) => void
  /** So much is waiting to be stored that nothing more should be begun. */
  readonly isBehind: () => boolean
  /** Waits for results and stores some of them. Several may run: one begins beside another when it has a full batch. */
  readonly round: Effect.Effect<void, StoreUnavailable>
}

export const makeRecorder = Effect.fnUntraced(function* (
  /** What runs in this process. */
  running: ReadonlyMap<string, Running>,
  {
    forget,
    keep,
    found
  }: {
    readonly forget: (entry: Running) => void
    /** Stored: this process looks at it next. */
    readonly keep: (claimed: Claimed, dueIn: number) => void
    /** Perhaps stored, and nobody looks at it: the queue has to offer it again. */
    readonly found: (resource: Pick<Lease, "orgId" | "uid">) => void
  },
  registrations: ReadonlyMap<string, Registration>,
  store: WorkStore["Service"],
  options: EngineOptions
) {
  const results: Array<Recorded> = []
  /** How many are being stored. */
  let underWay = 0
  const added = yield* Queue.sliding<void>(1)
  const holderOf = (lease: Lease): Running | undefined => {
    const entry = running.get(lease.uid)
    return entry?.claimed.token === lease.token ? entry : undefined
  }

  /** The oldest `count` results of a batch need no storing any more. */
  const settle = (batch: Array<Recorded>, count: number, kept: ReadonlyArray<Lease>): void => {
    const tokens = new Map(kept.map(({ uid, token }) => [uid, token]))
    for (const { lease, dueIn, keptForMs } of batch.splice(0, count)) {
      const isStored = tokens.get(lease.uid) === lease.token
      if (!isStored) metrics.fenced()
      const entry = holderOf(lease)
      if (entry !== undefined) forget(entry)
      if (keptForMs === undefined) continue
      if (isStored && entry !== undefined) keep(entry.claimed, dueIn)
      // It may have been stored by a try whose answer was lost, or a heartbeat missed the lease that storing had ended.
      else found(lease)
    }
    metrics.recorded(count)
  }

  const storeOldest = (batch: Array<Recorded>, count: number): Effect.Effect<void, StoreUnavailable> =>
    Effect.suspend(() =>
      orRefused(store.record(batch.slice(0, count))).pipe(
        Effect.map((kept) => settle(batch, count, kept)),
        Effect.catchTag("ResultsRefused", (refused) => {
          if (count === 1) return failOldest(batch, refused)
          const half = Math.ceil(count / 2)
          return Effect.andThen(storeOldest(batch, half), storeOldest(batch, count - half))
        })
      )
    )

  /** Stores, instead of what the oldest result of a batch says, that it could not be stored. */
  const failOldest = Effect.fnUntraced(function* (batch: Array<Recorded>, refused: ResultsRefused) {
    const [{ lease } = { lease: undefined }] = batch
    const entry = lease === undefined ? undefined : holderOf(lease)
    const registration = entry === undefined ? undefined : registrations.get(entry.claimed.kind)
    // Its lease was lost meanwhile: nothing of this run is to be stored.
    if (entry === undefined || registration === undefined) return settle(batch, 1, [])
    const { claimed } = entry
    const about = { kind: claimed.kind, uid: claimed.uid }
    yield* Effect.logError(
      "the store refuses what a reconcile found; trying again by its backoff",
      refused,
      about
    )
    const failure = new Retryable({ message: "What was found cannot be stored; the log tells why" })
    yield* Effect.gen(function* () {
      const outcome = yield* failureOutcome(claimed, options, Cause.fail(failure), never)
      const { recorded } = yield* report(registration, claimed, options, outcome, [], never)
      return yield* store.record([recorded])
    }).pipe(
      orRefused,
      Effect.catchTag("ResultsRefused", (again) =>
        Effect.logError(
          "the store refuses even that a reconcile failed; trying again later",
          again,
          about
        ).pipe(
          Effect.andThen(store.release([{ ...claimed, lateBy: -options.backoffMs[1] }])),
          Effect.as([claimed])
        )
      ),
      Effect.map((kept) => settle(batch, 1, kept))
    )
  })

  const recorder: Recorder = {
    add: (result) => {
      results.push(result)
      Queue.offerUnsafe(added, undefined)
    },
    isBehind: () => results.length + underWay >= 4 * batchSize,
    round: Effect.gen(function* () {
      while (results.length === 0 || (underWay > 0 && results.length < batchSize)) yield* Queue.take(added)
      const batch = results.splice(0, batchSize)
      const size = batch.length
      underWay += size
      yield* Effect.ensuring(
        storeOldest(batch, size),
        Effect.sync(() => {
          underWay -= size
          // What the store did not answer for is stored next.
          results.unshift(...batch)
        })
      )
    })
  }
  return recorder
})

/** A fault of the program that shows only with certain results must not keep the others either. */
const orRefused = <A, E>(self: Effect.Effect<A, E>): Effect.Effect<A, E | ResultsRefused> =>
  Effect.catchDefect(self, (cause) =>
    Effect.fail(new ResultsRefused({ message: "They could not be handed to the store", cause }))
  )
