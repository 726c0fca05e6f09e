/**
 * A policy is in force when every site of its project has the mode that it says, and the edge has taken that up. A site
 * that comes later begins with what the policy says then.
 */
import * as Effect from "effect/Effect"
import { AccessPolicy } from "#schemas/access-policy.ts"
import { EdgeNodes } from "#src/edge/EdgeNodes.ts"
import { EdgeSites } from "#src/edge/EdgeSites.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { absent, Retryable, register } from "#src/engine/Reconciler.ts"
import { SiteModes } from "#src/visitors/SiteModes.ts"

const retryable = ({ message, cause }: { readonly message: string; readonly cause?: unknown }) =>
  new Retryable({ message, cause })

interface Placed {
  readonly orgId: string
  readonly projectId: string | null
}

export const layer = register(
  AccessPolicy,
  { driftInterval: "5 minutes", concurrency: 32 },
  Effect.gen(function* () {
    const modes = yield* SiteModes
    const sites = yield* EdgeSites
    const nodes = yield* EdgeNodes

    const look = ({ orgId, projectId }: Placed) =>
      externalCall("sites.look", "read")(modes.look(orgId, projectId ?? "")).pipe(Effect.mapError(retryable))

    const apply = Effect.fnUntraced(function* (resource: Placed) {
      for (const { environmentUid, wanted, actual } of yield* look(resource)) {
        if (actual === null || actual === wanted) continue
        const set = sites.setAccess({ orgId: resource.orgId, environmentUid }, wanted)
        yield* Effect.mapError(externalCall("sites.set", "write")(set), retryable)
      }
    })

    /** Whether any edge serves at all. Where one does, every one at work has taken up what is stored. */
    const served = externalCall(
      "edge.ask",
      "read"
    )(
      Effect.flatMap(nodes.live, (live) =>
        live.length === 0 ? Effect.succeed(false) : Effect.as(nodes.askAll, true)
      )
    ).pipe(
      Effect.mapError((error) =>
        error._tag === "EdgeUnreachable"
          ? new Retryable({ message: error.message, reason: "EdgeUnreachable" })
          : retryable(error)
      )
    )

    return {
      observe: Effect.fnUntraced(function* (resource) {
        const { spec, deleting } = resource
        const environments = yield* look(resource)
        const there = environments.flatMap(({ actual, ...one }) =>
          actual === null ? [] : [{ actual, ...one }]
        )
        const differences = there
          .filter(({ wanted, actual }) => wanted !== actual)
          .map(({ environment, wanted, actual }) => ({
            field: `/environments/${environment}`,
            message: `is ${actual} at the edge, not ${wanted}`
          }))
        if (deleting && differences.length === 0) return absent
        const status = {
          environments: Object.fromEntries(there.map(({ environment, actual }) => [environment, actual]))
        }
        const present = { _tag: "Present" as const, status, ready: differences.length === 0, differences }
        if (deleting || differences.length > 0) return present
        // A site that is being made at this moment may have been begun before the policy was there.
        const pending = environments.filter(({ actual }) => actual === null)
        if (pending.length > 0) {
          return {
            ...present,
            ready: false,
            reason: "AddressesPending",
            message: `No address yet: ${pending.map(({ environment }) => environment).join(", ")}`,
            pollAfter: "2 seconds"
          }
        }
        const known = new Set(environments.map(({ environment }) => environment))
        const missing = Object.keys(spec.environments).filter((name) => !known.has(name))
        if (missing.length > 0) {
          const message = `The project has no such environment: ${missing.join(", ")}`
          return { ...present, note: { reason: "EnvironmentMissing", message } }
        }
        if (there.every(({ actual }) => actual === "public") || (yield* served)) return present
        const message = "No edge is at work: the environments cannot be seen at all"
        return { ...present, note: { reason: "EdgeUnreachable", message } }
      }),
      converge: apply,
      remove: apply
    }
  })
)
