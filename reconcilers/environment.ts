/** An environment is ready as soon as it exists: there is nothing outside to converge. Deletion waits for its children. */
import * as Effect from "effect/Effect"
import { Environment } from "#schemas/environment.ts"
import { register } from "#src/engine/Reconciler.ts"
import { parentReconciler } from "./parent.ts"

export const layer = register(
  Environment,
  { driftInterval: "1 hour", concurrency: 64 },
  Effect.sync(parentReconciler)
)
