/** Measures what the store itself knows, of all organizations at once: one statement for each feature, every 15 seconds. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { ArchiveStates } from "#src/backups/ArchiveStates.ts"
import { CronFailures } from "#src/crons/CronFailures.ts"
import { DatabaseAvailability } from "#src/databases/DatabaseAvailability.ts"
import { RequestRecords } from "#src/edge/requests/RequestRecords.ts"
import { QueueBacklogs } from "#src/queues/QueueBacklogs.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import { MetricSamples, type Sample, type Values } from "../MetricSamples.ts"
import { inTurns } from "../turns.ts"

interface Subject {
  readonly orgId: string
  readonly uid: string
}

/** One look. What a feature cannot tell is missing in it, and keeps nothing else from being told. */
export const look = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const { record } = yield* MetricSamples
  const [queues, crons, databases, archives, requests] = [
    yield* QueueBacklogs,
    yield* CronFailures,
    yield* DatabaseAvailability,
    yield* ArchiveStates,
    yield* RequestRecords
  ]
  // By the store's clock, as the ages that are measured here: the process may have another.
  const [clock] = yield* repeatable(sql<{ readonly at: Date }>`select now() as at`)
  if (clock === undefined) return
  const { at } = clock
  /** By resource: a database is told of by two features. */
  const samples = new Map<string, Sample>()
  const tell = <S extends Subject, E>(
    seen: Effect.Effect<ReadonlyArray<S>, E>,
    values: (subject: S) => Values
  ) =>
    seen.pipe(
      Effect.flatMap((subjects) =>
        Effect.sync(() => {
          for (const subject of subjects) {
            const { orgId, uid } = subject
            const before = samples.get(uid)?.values
            samples.set(uid, { orgId, uid, source: "store", at, values: { ...before, ...values(subject) } })
          }
        })
      ),
      Effect.catchCause((cause) => Effect.logWarning("could not measure all that the store knows", cause))
    )
  yield* Effect.all(
    [
      tell(queues.all, ({ messages, failed, oldestAgeSeconds }) => ({
        "queue.backlog": Math.max(0, messages - failed),
        "queue.backlog_messages": messages,
        "queue.oldest_message_age_seconds": oldestAgeSeconds
      })),
      tell(crons.lastHour, ({ failures }) => ({ "cron.failures": failures })),
      tell(databases.all, ({ available }) => ({ "database.unavailable": available ? 0 : 1 })),
      tell(archives.all, ({ failed, lagSeconds }) => ({
        "backup.archive_failed": failed ? 1 : 0,
        ...(lagSeconds === null ? {} : { "backup.archive_lag_seconds": lagSeconds })
      })),
      tell(requests.lastMinute, ({ requests, errors }) => ({
        "http.requests": requests,
        "http.errors": errors
      }))
    ],
    { concurrency: 2 }
  )
  yield* record([...samples.values()])
})

export const layer = Layer.effectDiscard(
  inTurns({ name: "store", does: "measure what the store knows", seconds: 15 }, look)
)

/** What other features tell. */
export const subjects = Layer.mergeAll(
  QueueBacklogs.layer,
  CronFailures.layer,
  DatabaseAvailability.layer,
  ArchiveStates.layer,
  RequestRecords.layer
)
