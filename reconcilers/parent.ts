/**
 * What kinds that only contain others have in common. The engine deletes children first, so by the time such a
 * resource is asked to go it holds nothing and there is nothing to take away.
 */
import * as Effect from "effect/Effect"
import { absent, type Reconciler } from "#src/engine/Reconciler.ts"

export const parentReconciler = (): Reconciler<unknown, Record<string, never>> => ({
  observe: (resource) =>
    Effect.succeed(
      resource.deleting ? absent : { _tag: "Present", status: {}, ready: true, differences: [] }
    ),
  converge: () => Effect.void,
  remove: () => Effect.void
})
