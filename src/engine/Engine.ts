/** What the rest of the program may ask of the engine. */
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import type { StoreUnavailable } from "#src/store/errors.ts"
import type { ResourceRecord } from "#src/store/records.ts"

/** How a reconcile that somebody waits for ended. */
export type Settled =
  /** The generation that was asked for has been acted on; the record tells how it went. */
  | { readonly _tag: "Settled"; readonly record: ResourceRecord }
  /** The resource is gone. */
  | { readonly _tag: "Gone" }
  /** It was not done in time; the engine goes on with it. */
  | { readonly _tag: "TimedOut" }

export class Engine extends Context.Service<
  Engine,
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
>()("svc/engine/Engine") {}
