/**
 * A backup destination is what it is: nothing of it is made or changed. What this keeps true: it is tested now and then,
 * and whoever relies on it learns when it stops working and when it works again. A test writes, reads and deletes an
 * object, so it is a step; a look reads how the last test went and whether the next one is due.
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
import { Destinations } from "#src/backups/destinations/Destinations.ts"
import { DestinationOptions } from "#src/backups/destinations/options.ts"
import { externalCall } from "#src/engine/external-call.ts"
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
        if (known === undefined) return yield* missing(version)
        const age = (yield* Clock.currentTimeMillis) - known.testedAt.getTime()
        const { fault, message } = known
        const due = age < (fault === null ? goodMs : badMs) ? [] : [testIsDue]
        if (fault === null) return { ...seen, ready: true, maintenance: due }
        return {
          ...seen,
          differences: due,
          ready: false,
          reason: "AccessFailed",
          message: `${message ?? "It cannot be used"} (${fault}). It is tested again every ${Math.ceil(againMs / 1000)} seconds`,
          pollAfter: againMs
        }
      }),
      converge: Effect.fnUntraced(function* (resource) {
        const { version } = resource.spec
        const tested = yield* retryable(
          externalCall("destination.test", "write")(destinations.test(resource, version))
        )
        if (Option.isNone(tested)) return yield* missing(version)
      }),
      remove: (resource) =>
        retryable(externalCall("destination.forget", "write")(destinations.forget(resource)))
    }
  })

const testIsDue = { field: "/tested", message: "the next test of writing, reading and deleting is due" }

const missing = (version: number) =>
  new Terminal({ message: `The configuration of version ${version} is missing` })

export const layer = Layer.unwrap(
  Effect.map(DestinationOptions, (options) =>
    register(BackupDestination, { driftInterval: options.lookMs, concurrency: 8 }, reconciler(options))
  )
)
