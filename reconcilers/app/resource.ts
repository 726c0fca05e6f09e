/** An app as its reconciler is handed it, and failures of what it asks others for. */
import * as Effect from "effect/Effect"
import type { AppSpec, AppStatus } from "#schemas/app.ts"
import { type Resource, Retryable } from "#src/engine/Reconciler.ts"

export type AppResource = Resource<AppSpec, AppStatus>

export const retryable = <A, E extends { readonly message: string }>(self: Effect.Effect<A, E>) =>
  Effect.mapError(self, (error) => new Retryable({ message: error.message, cause: error }))

/** The engine is away: asked again soon. */
export const soon = <A, E extends { readonly message: string }>(self: Effect.Effect<A, E>) =>
  Effect.mapError(
    self,
    (error) =>
      new Retryable({
        message: error.message,
        cause: error,
        reason: "EngineUnreachable",
        againAfterMs: 2_000
      })
  )
