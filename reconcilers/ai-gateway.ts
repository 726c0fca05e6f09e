/**
 * A gateway has nothing outside to converge: calls read its specification from the store. What is looked at is whether
 * the operator has upstreams for the models that it allows, and whether they answer.
 */
import * as Effect from "effect/Effect"
import { AiGateway } from "#schemas/ai-gateway.ts"
import { ModelUpstreams } from "#src/ai-gateways/ModelUpstreams.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { absent, Retryable, register } from "#src/engine/Reconciler.ts"

/** An upstream that comes or goes is seen within. */
const lookEvery = "1 minute"

export const layer = register(
  AiGateway,
  { driftInterval: lookEvery, concurrency: 64 },
  Effect.gen(function* () {
    const upstreams = yield* ModelUpstreams
    return {
      observe: Effect.fnUntraced(function* ({ orgId, spec, deleting }) {
        if (deleting) return absent
        const models = yield* Effect.forEach(spec.allowedModels, (model) =>
          Effect.map(externalCall("upstreams.look", "read")(upstreams.of(model, orgId)), (found) => ({
            model,
            found
          }))
        ).pipe(Effect.mapError(({ message, cause }) => new Retryable({ message, cause })))
        const missing = models.filter(({ found }) => found.length === 0).map(({ model }) => model)
        const failing = models.flatMap(({ found }) => found.filter((one) => one.failing))
        const present = {
          _tag: "Present" as const,
          status: {
            availableModels: models.filter(({ found }) => found.length > 0).map(({ model }) => model)
          },
          differences: []
        }
        const unavailable = {
          reason: "ModelUnavailable",
          message: `The operator has named no upstream for ${missing.join(", ")}: calls are refused`
        }
        if (missing.length === models.length)
          return { ...present, ready: false, pollAfter: "30 seconds", ...unavailable }
        if (missing.length > 0) return { ...present, ready: true, note: unavailable }
        if (failing.length === 0) return { ...present, ready: true }
        const names = [...new Set(failing.map(({ name }) => name))].join(", ")
        const note = {
          reason: "UpstreamFailing",
          message: `Left alone for a while, since it fails: ${names}`
        }
        return { ...present, ready: true, note }
      }),
      converge: () => Effect.void,
      remove: () => Effect.void
    }
  })
)
