/**
 * The variables of an environment are sealed in the store; there is no server to converge. What this keeps true:
 * every key of the specification has a value that opens with the keys at hand and matches its fingerprint, and no
 * value stays behind once its key is gone.
 */
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { EnvVariables, variableField } from "#schemas/env-variables.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { absent, Retryable, register } from "#src/engine/Reconciler.ts"
import { Fingerprint } from "#src/store/Fingerprint.ts"
import { Secrets } from "#src/store/Secrets.ts"

const prefix = variableField("")

export const layer = register(
  EnvVariables,
  { driftInterval: "1 hour", concurrency: 32 },
  Effect.gen(function* () {
    const secrets = yield* Secrets
    const fingerprint = yield* Fingerprint
    const unreadable = Effect.mapError(
      (error: { readonly message: string }) => new Retryable({ message: error.message, reason: "Unreadable" })
    )

    return {
      observe: Effect.fnUntraced(function* (resource) {
        const ref = { orgId: resource.orgId, uid: resource.uid }
        const values = yield* unreadable(secrets.readAll(ref, prefix))
        if (resource.deleting && values.size === 0) return absent
        const { variables } = resource.spec
        const differences = []
        for (const [key, expected] of Object.entries(variables)) {
          const value = values.get(variableField(key))
          if (value === undefined)
            differences.push({ field: `/variables/${key}`, message: "has no stored value" })
          else if (fingerprint(Redacted.value(value)) !== expected) {
            differences.push({
              field: `/variables/${key}`,
              message: "the stored value is not the one that was set"
            })
          }
        }
        for (const field of values.keys()) {
          const key = field.slice(prefix.length)
          if (!(key in variables))
            differences.push({ field: `/variables/${key}`, message: "a value is left over" })
        }
        return {
          _tag: "Present" as const,
          status: { count: Object.keys(variables).length },
          ready: differences.every((difference) => difference.message === "a value is left over"),
          differences
        }
      }),
      converge: Effect.fnUntraced(function* (resource, observation) {
        const keep = Object.keys(resource.spec.variables).map(variableField)
        yield* unreadable(externalCall("variables.prune", "write")(secrets.prune(resource, prefix, keep)))
        const lost = observation._tag === "Present" && !observation.ready ? observation.differences : []
        if (lost.length > 0) {
          return yield* new Retryable({
            reason: "Unreadable",
            message: `Values are lost and must be set again: ${lost.map((difference) => difference.field.slice("/variables/".length)).join(", ")}`
          })
        }
      }),
      remove: Effect.fnUntraced(function* (resource) {
        yield* unreadable(externalCall("variables.prune", "write")(secrets.prune(resource, prefix, [])))
      })
    }
  })
)
