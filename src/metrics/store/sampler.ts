/** Measures what the store itself knows, of all organizations at once: one statement for each feature, every 15 seconds. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { ArchiveStates } from "#src/backups/ArchiveStates.ts"
import { CronFailures } from "#src/crons/CronFailures.ts"
import { type Availability, DatabaseAvailability } from "#src/databases/DatabaseAvailability.ts"
import { RequestRecords } from "#src/edge/requests/RequestRecords.ts"
import { answered } from "#src/engine/answered.ts"
import { QueueBacklogs } from "#src/queues/QueueBacklogs.ts"
import { Db, orUnavailable, repeatable, type Sql, transaction } from "#src/store/Db.ts"
import { CurrentMetrics, type Subject } from "../CurrentMetrics.ts"
import { MetricSamples, type Sample, type Values } from "../MetricSamples.ts"
import { storeLookSeconds } from "../settings.ts"
import { inTurns } from "../turns.ts"

/** Three turns of two features each, and what is left of the interval for storing it. */
const patience = 4_000

/**
 * One look. What a feature cannot tell, or not within `patienceMs`, is missing in it, and keeps nothing else from being told.
 */
export const makeLook = Effect.fnUntraced(function* (patienceMs: number) {
  const { engine: sql } = yield* Db
  const { record } = yield* MetricSamples
  const current = yield* CurrentMetrics
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
  /** Of those in doubt, the machine knows whether the server has answered it; with a process that has not, doubt remains. */
  const settled = Effect.fnUntraced(function* (all: ReadonlyArray<Availability>) {
    const machines = yield* current.onMachines(all.filter(({ available }) => available === null))
    return all.flatMap(({ available, ...subject }) => {
      if (available !== null) return [{ ...subject, available }]
      const values = machines.get(subject.uid)
      if (values === undefined) return []
      if (values["database.connections"] !== undefined) return [{ ...subject, available: true }]
      return values["runtime.uptime_seconds"] === undefined ? [{ ...subject, available: false }] : []
    })
  })
  const tell = <S extends Subject, E>(
    what: string,
    seen: Effect.Effect<ReadonlyArray<S>, E>,
    values: (subject: S) => Values
  ) =>
    within(sql, patienceMs, seen).pipe(
      answered(`measure ${what}`, patienceMs + 500),
      Effect.flatMap((subjects) =>
        Effect.sync(() => {
          for (const subject of subjects) {
            const { orgId, uid } = subject
            const before = samples.get(uid)?.values
            samples.set(uid, { orgId, uid, source: "store", at, values: { ...before, ...values(subject) } })
          }
        })
      ),
      Effect.catchCause((cause) => Effect.logWarning(`could not measure ${what}`, cause))
    )
  yield* Effect.all(
    [
      tell("queues", queues.all, ({ messages, waiting, oldestAgeSeconds }) => ({
        "queue.backlog": waiting,
        "queue.backlog_messages": messages,
        "queue.oldest_message_age_seconds": oldestAgeSeconds
      })),
      tell("cron jobs", crons.lastHour, ({ failures }) => ({ "cron.failures": failures })),
      tell("databases", Effect.flatMap(databases.all, settled), ({ available }) => ({
        "database.unavailable": available ? 0 : 1
      })),
      tell("archives of databases", archives.all, ({ failed, lagSeconds }) => ({
        "backup.archive_failed": failed ? 1 : 0,
        ...(lagSeconds === null ? {} : { "backup.archive_lag_seconds": lagSeconds })
      })),
      tell("requests", requests.lastMinute, ({ requests, errors }) => ({
        "http.requests": requests,
        "http.errors": errors
      }))
    ],
    { concurrency: 2 }
  )
  yield* record([...samples.values()])
})

const look = makeLook(patience)

export const layer = Layer.effectDiscard(
  inTurns({ name: "store", does: "measure what the store knows", seconds: storeLookSeconds }, look)
)

/** The server ends a statement that takes too long, and does not go on with what nobody waits for. */
const within = <A, E>(sql: Sql, ms: number, self: Effect.Effect<A, E>) =>
  orUnavailable(
    transaction(sql, Effect.andThen(sql`select set_config('statement_timeout', ${String(ms)}, true)`, self))
  )

/** What other features tell. */
export const subjects = Layer.mergeAll(
  CurrentMetrics.layer,
  QueueBacklogs.layer,
  CronFailures.layer,
  DatabaseAvailability.layer,
  ArchiveStates.layer,
  RequestRecords.layer
)
