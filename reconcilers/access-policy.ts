/**
 * A policy is in force when every site of its project has the mode that it says. The edge hears of a changed site by
 * itself, and a site that comes later begins with what the policy says then.
 */
import * as Effect from "effect/Effect"
import { AccessPolicy } from "#schemas/access-policy.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { absent, Retryable, register } from "#src/engine/Reconciler.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { SiteModes } from "#src/visitors/SiteModes.ts"

const retryable = ({ message, cause }: StoreUnavailable) => new Retryable({ message, cause })

export const layer = register(
  AccessPolicy,
  { driftInterval: "5 minutes", concurrency: 32 },
  Effect.gen(function* () {
    const sites = yield* SiteModes
    const apply = ({ orgId, projectId }: { readonly orgId: string; readonly projectId: string | null }) =>
      externalCall(
        "sites.apply",
        "write"
      )(sites.apply(orgId, projectId ?? "")).pipe(Effect.mapError(retryable))
    return {
      observe: Effect.fnUntraced(function* ({ orgId, projectId, spec, deleting }) {
        const look = externalCall("sites.look", "read")(sites.look(orgId, projectId ?? ""))
        const modes = yield* Effect.mapError(look, retryable)
        const served = modes.flatMap(({ environment, wanted, actual }) =>
          actual === null ? [] : [{ environment, wanted, actual }]
        )
        const differences = served
          .filter(({ wanted, actual }) => wanted !== actual)
          .map(({ environment, wanted, actual }) => ({
            field: `/environments/${environment}`,
            message: `is ${actual} at the edge, not ${wanted}`
          }))
        if (deleting && differences.length === 0) return absent
        const present = {
          _tag: "Present" as const,
          status: {
            environments: Object.fromEntries(served.map(({ environment, actual }) => [environment, actual]))
          },
          ready: differences.length === 0,
          differences
        }
        // A site that is being made at this moment may have been begun before the policy was there.
        const pending = modes.filter(({ actual }) => actual === null).map(({ environment }) => environment)
        if (present.ready && !deleting && pending.length > 0) {
          return {
            ...present,
            ready: false,
            reason: "AddressesPending",
            message: `No address yet: ${pending.join(", ")}`,
            pollAfter: "2 seconds"
          }
        }
        const known = new Set(modes.map(({ environment }) => environment))
        const missing = deleting ? [] : Object.keys(spec.environments).filter((name) => !known.has(name))
        if (!present.ready || missing.length === 0) return present
        const note = {
          reason: "EnvironmentMissing",
          message: `The project has no such environment: ${missing.join(", ")}`
        }
        return { ...present, note }
      }),
      converge: apply,
      remove: apply
    }
  })
)
