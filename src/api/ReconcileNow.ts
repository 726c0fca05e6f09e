/** What the rest of the program may ask of the engine. */
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { Worker } from "#src/engine/Worker.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

/** How a reconcile that somebody waits for ended. */
export type Settled =
  /** The generation that was asked for has been acted on; the record tells how it went. */
  | { readonly _tag: "Settled"; readonly record: ResourceRecord }
  /** The resource is gone. */
  | { readonly _tag: "Gone" }
  /** It was not done in time; the engine goes on with it. */
  | { readonly _tag: "TimedOut" }

export class ReconcileNow extends Context.Service<
  ReconcileNow,
  {
    /**
     * Reconciles the resource within the caller's request, under the same lease as any other reconcile, and waits
     * until the current generation is ready or has failed. A process without the engine's role waits for one that has it.
     */
    readonly reconcileNow: (
      orgId: string,
      uid: string,
      timeout: Duration.Input
    ) => Effect.Effect<Settled, StoreUnavailable>
  }
>()("svc/api/ReconcileNow") {
  static readonly layer = Layer.effect(
    ReconcileNow,
    Effect.gen(function* () {
      const resources = yield* Resources
      // Absent in a process that only answers requests.
      const worker = Option.getOrUndefined(yield* Effect.serviceOption(Worker))

      const look = Effect.fnUntraced(function* (
        orgId: string,
        uid: string
      ): Effect.fn.Return<Settled, StoreUnavailable> {
        const found = yield* resources.get(orgId, uid)
        if (Option.isNone(found)) return { _tag: "Gone" }
        return isSettled(found.value) ? { _tag: "Settled", record: found.value } : { _tag: "TimedOut" }
      })

      return ReconcileNow.of({
        reconcileNow: Effect.fn("Engine.reconcileNow")(function* (orgId, uid, timeout) {
          const wait = Effect.gen(function* () {
            if (worker !== undefined) yield* worker.runOne(orgId, uid)
            let now = yield* look(orgId, uid)
            for (let delay = 10; now._tag === "TimedOut"; delay = Math.min(250, delay * 1.5)) {
              yield* Effect.sleep(delay)
              now = yield* look(orgId, uid)
            }
            return now
          })
          const settled = yield* Effect.timeoutOption(wait, timeout)
          return Option.getOrElse(settled, (): Settled => ({ _tag: "TimedOut" }))
        })
      })
    })
  )
}

/** The current generation has been acted on, and the engine is content with it or has given up on it. */
const isSettled = (record: ResourceRecord): boolean =>
  record.deletionRequestedAt === null &&
  record.observedGeneration === record.generation &&
  (record.phase === "failed" ||
    record.conditions.some(
      (condition) =>
        condition.type === "Ready" &&
        condition.status === "true" &&
        condition.observedGeneration === record.generation
    ))
