/**
 * An alert's rule is put in force for the evaluation, which goes by it and keeps its state. What this keeps true: the
 * evaluation follows the specification as it is, and nothing is left of an alert that was deleted.
 */
import { isDeepStrictEqual } from "node:util"
import * as Effect from "effect/Effect"
import { Alert, type AlertSpec, type AlertStatus, thresholdOf } from "#schemas/alert.ts"
import { measurements } from "#schemas/signal.ts"
import { AlertRules } from "#src/alerts/AlertRules.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { absent, type Resource, Retryable, register } from "#src/engine/Reconciler.ts"

type AlertResource = Resource<AlertSpec, AlertStatus>

export const layer = register(
  Alert,
  { driftInterval: "5 minutes", concurrency: 32 },
  Effect.gen(function* () {
    const rules = yield* AlertRules

    return {
      observe: Effect.fnUntraced(function* (resource) {
        if (resource.deleting) {
          const left = yield* retryable(externalCall("alerts.look", "read")(rules.remains(resource)))
          if (!left) return absent
          return { _tag: "Present" as const, status: { watching: false }, ready: false, differences: [] }
        }
        const wanted = ruleOf(resource)
        const look = yield* retryable(externalCall("alerts.look", "read")(rules.look(wanted)))
        const { inForce, missing, strangers } = look
        if (inForce === undefined) return absent
        const { name, projectId, config } = wanted
        const matches = isDeepStrictEqual(inForce, {
          name,
          projectId,
          config,
          threshold: thresholdOf(config.condition)
        })
        return {
          _tag: "Present" as const,
          status: { watching: config.enabled },
          ready: matches,
          differences: matches
            ? []
            : [{ field: "/condition", message: "the evaluation follows another specification" }],
          ...noteOf(config, missing, strangers)
        }
      }),
      converge: (resource) =>
        accepted(
          externalCall("alerts.put", "write")(rules.put({ ...ruleOf(resource), fence: resource.fence }))
        ),
      remove: (resource) => accepted(externalCall("alerts.remove", "write")(rules.remove(resource)))
    }
  })
)

const ruleOf = ({ orgId, uid, projectId, name, spec }: AlertResource) => ({
  orgId,
  uid,
  projectId: projectId ?? uid,
  name,
  config: spec
})

const noteOf = (
  { condition: { signal } }: AlertSpec,
  missing: ReadonlyArray<string>,
  strangers: ReadonlyArray<string>
) => {
  const { unavailable } = measurements[signal]
  if (unavailable !== undefined)
    return {
      note: {
        reason: "SignalUnavailable",
        message: `It never fires, because nothing measures ${signal}: ${unavailable}`
      }
    }
  if (missing.length > 0)
    return {
      note: {
        reason: "ScopeMissing",
        message: `What it should watch is not there: the ${missing.join(", the ")} of its scope`
      }
    }
  if (strangers.length > 0)
    return {
      note: {
        reason: "RecipientUnknown",
        message: `No member of the organization has the address ${strangers.join(", ")}; nothing is sent there`
      }
    }
  return {}
}

const retryable = Effect.mapError(
  (error: { readonly message: string }) => new Retryable({ message: error.message, cause: error })
)

/** A step that comes late is refused. */
const accepted = (self: Effect.Effect<boolean, { readonly message: string }>) =>
  Effect.flatMap(retryable(self), (done) =>
    done ? Effect.void : Effect.fail(new Retryable({ message: "A later run has worked on the alert" }))
  )
