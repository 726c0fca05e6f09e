/**
 * A backup destination is what it is: nothing of it is made or changed. What this keeps true: it is tried out now and
 * then, and whoever relies on it learns when it stops working and when it works again. A test leaves nothing behind.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import {
  BackupDestination,
  type BackupDestinationSpec,
  type BackupDestinationStatus
} from "#schemas/backup-destination.ts"
import { Destinations } from "#src/backups/Destinations.ts"
import { DestinationOptions } from "#src/backups/destination-options.ts"
import { outside } from "#src/engine/outside.ts"
import { absent, type Reconciler, Retryable, register, Terminal } from "#src/engine/Reconciler.ts"

const reconciler = ({
  goodMs,
  badMs,
  againMs
}: DestinationOptions): Effect.Effect<
  Reconciler<BackupDestinationSpec, BackupDestinationStatus>,
  never,
  Destinations
> =>
  Effect.gen(function* () {
    const destinations = yield* Destinations
    const retryable = Effect.mapError(
      (error: { readonly message: string }) => new Retryable({ message: error.message })
    )

    return {
      observe: Effect.fnUntraced(function* (resource) {
        const { version } = resource.spec
        const seen = { _tag: "Present" as const, status: { version }, differences: [] }
        if (resource.deleting) {
          return (yield* retryable(destinations.remains(resource))) ? { ...seen, ready: false } : absent
        }
        const known = (yield* retryable(destinations.tests(resource.orgId)))(resource.uid, version)
        const age = (yield* Clock.currentTimeMillis) - (known?.testedAt.getTime() ?? 0)
        const last =
          known !== undefined && age < (known.fault === null ? goodMs : badMs)
            ? Option.some(known)
            : yield* retryable(outside("destination.test", "read")(destinations.test(resource, version)))
        if (Option.isNone(last)) {
          return yield* new Terminal({ message: `The configuration of version ${version} is missing` })
        }
        const { fault, message } = last.value
        if (fault === null) return { ...seen, ready: true }
        return {
          ...seen,
          ready: false,
          reason: "AccessFailed",
          message: `${message ?? "It cannot be used"} (${fault}). It is tested again every ${Math.ceil(againMs / 1000)} seconds`,
          pollAfter: againMs
        }
      }),
      converge: () => Effect.void,
      remove: (resource) => retryable(outside("destination.forget", "write")(destinations.forget(resource)))
    }
  })

export const layer = Layer.unwrap(
  Effect.map(DestinationOptions, (options) =>
    register(BackupDestination, { driftInterval: options.lookMs, concurrency: 8 }, reconciler(options))
  )
)
