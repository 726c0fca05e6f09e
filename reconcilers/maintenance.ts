/** Maintenance has nothing outside: what this keeps true is that the planner follows the schedule as it is. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Maintenance, type MaintenanceSpec } from "#schemas/maintenance.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { absent, Retryable, register } from "#src/engine/Reconciler.ts"
import { Schedules } from "#src/maintenance/Schedules.ts"

const retryable = Effect.mapError(
  (error: { readonly message: string }) => new Retryable({ message: error.message })
)
const late = new Retryable({ message: "A later reconcile works on the maintenance; this one stops" })
const wantedOf = ({ enabled, schedule }: MaintenanceSpec) => (enabled ? schedule : null)

export const layer = register(
  Maintenance,
  { driftInterval: "15 minutes", concurrency: 32 },
  Effect.gen(function* () {
    const schedules = yield* Schedules
    return {
      observe: Effect.fnUntraced(function* (resource) {
        const { spec, deleting } = resource
        if (deleting && !(yield* retryable(schedules.remains(resource)))) return absent
        const found = Option.getOrUndefined(yield* retryable(schedules.inForce(resource)))
        if (found === undefined && !deleting) return absent
        const matches = found?.schedule === wantedOf(spec)
        return {
          _tag: "Present" as const,
          status: { scheduled: found?.schedule ?? null },
          ready: matches,
          differences: matches ? [] : [{ field: "/schedule", message: "another schedule is in force" }]
        }
      }),
      converge: Effect.fnUntraced(function* ({ orgId, uid, spec, fence }) {
        const put = schedules.put({ orgId, uid, schedule: wantedOf(spec), fence })
        if (!(yield* retryable(externalCall("maintenance.put", "write")(put)))) return yield* late
      }),
      remove: Effect.fnUntraced(function* ({ orgId, uid, fence }) {
        const remove = schedules.remove({ orgId, uid, fence })
        if (!(yield* retryable(externalCall("maintenance.remove", "write")(remove)))) return yield* late
      })
    }
  })
)
