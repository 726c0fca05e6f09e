/**
 * A queue lives in the store itself. What this keeps true: the settings that those who deliver go by are the ones of
 * the specification, the dead letter queue is the one that has that name now, and there are as many slots as batches
 * may be under way.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Queue, type QueueSpec, type QueueStatus, usualConcurrency } from "#schemas/queue.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { absent, type Resource, Retryable, register, Waiting } from "#src/engine/Reconciler.ts"
import { type QueueSettings, QueueTables } from "#src/queues/QueueTables.ts"

/** The field of the specification that a stored setting follows from. */
const fieldOf: Readonly<Record<keyof QueueSettings, string>> = {
  paused: "/paused",
  retention_seconds: "/retentionSeconds",
  dead_letter_uid: "/deadLetterQueue",
  path: "/consumer/path",
  max_batch_size: "/consumer/maxBatchSize",
  max_batch_wait_seconds: "/consumer/maxBatchWaitSeconds",
  max_retries: "/consumer/maxRetries",
  retry_delay_seconds: "/consumer/retryDelaySeconds"
}
const settingNames = Object.keys(fieldOf) as ReadonlyArray<keyof QueueSettings>

/**
 * What is stored of batches while none are made. These are no defaults: other values would be drift of every queue that
 * earlier releases stored.
 */
const withoutConsumer = { maxBatchSize: 10, maxBatchWaitSeconds: 0, maxRetries: 0, retryDelaySeconds: 0 }

type QueueResource = Resource<QueueSpec, QueueStatus>

const concurrencyOf = ({ consumer }: QueueSpec) => consumer?.maxConcurrency ?? usualConcurrency
const environmentOf = ({ parentUid, uid }: QueueResource) => parentUid ?? uid

export const layer = register(
  Queue,
  { driftInterval: "1 minute", concurrency: 32 },
  Effect.gen(function* () {
    const tables = yield* QueueTables

    const wantedOf = Effect.fnUntraced(function* (resource: QueueResource) {
      const { spec, orgId, projectId, environment } = resource
      const { consumer, deadLetterQueue } = spec
      const letters =
        deadLetterQueue === null
          ? Option.none<string>()
          : yield* retryable(tables.named(orgId, environmentOf(resource), deadLetterQueue))
      const batches = consumer ?? withoutConsumer
      const settings: QueueSettings = {
        paused: spec.paused,
        retention_seconds: spec.retentionSeconds,
        dead_letter_uid: Option.getOrNull(letters),
        path: consumer?.path ?? null,
        max_batch_size: batches.maxBatchSize,
        max_batch_wait_seconds: batches.maxBatchWaitSeconds,
        max_retries: batches.maxRetries,
        retry_delay_seconds: batches.retryDelaySeconds
      }
      const lettersMissing =
        deadLetterQueue === null || Option.isSome(letters)
          ? undefined
          : new Waiting({
              on: { kind: "Queue", projectId, environment, name: deadLetterQueue },
              reason: "NoDeadLetterQueue",
              message: `There is no queue "${deadLetterQueue}" in this environment for what is given up`
            })
      return { settings, lettersMissing }
    })

    return {
      observe: Effect.fnUntraced(function* (resource) {
        const place = { orgId: resource.orgId, uid: resource.uid, environmentUid: environmentOf(resource) }
        const found = yield* retryable(externalCall("queue.inspect", "read")(tables.inspect(place)))
        if (Option.isNone(found)) return absent
        const { settings, slots, backlog, failed, oldest, isAnswered } = found.value
        const concurrency = concurrencyOf(resource.spec)
        const status = { backlog, failed, oldestMessageAt: oldest?.toISOString() ?? null, concurrency: slots }
        if (resource.deleting) return { _tag: "Present" as const, status, ready: false, differences: [] }
        const { settings: wanted, lettersMissing } = yield* wantedOf(resource)
        const differences =
          settings === undefined
            ? [{ field: "", message: "it has not been made" }]
            : settingNames
                .filter((name) => settings[name] !== wanted[name])
                .map((name) => ({ field: fieldOf[name], message: "another value is in force" }))
        if (settings !== undefined && slots !== concurrency)
          differences.push({ field: "/consumer/maxConcurrency", message: `there are ${slots} slots` })
        // It takes messages all the same, and keeps those that it gives up.
        if (differences.length === 0 && lettersMissing !== undefined) return yield* lettersMissing
        const why =
          resource.spec.consumer !== undefined && !isAnswered
            ? {
                reason: "NoOrigin",
                message: "Nothing was deployed to the environment, and it does not say where its app answers"
              }
            : {}
        return { _tag: "Present" as const, status, differences, ready: differences.length === 0, ...why }
      }),
      converge: Effect.fnUntraced(function* (resource) {
        const { settings } = yield* wantedOf(resource)
        const place = {
          orgId: resource.orgId,
          uid: resource.uid,
          fence: resource.fence,
          environmentUid: environmentOf(resource)
        }
        yield* accepted(
          externalCall("queue.apply", "write")(tables.apply(place, settings, concurrencyOf(resource.spec)))
        )
      }),
      remove: Effect.fnUntraced(function* (resource) {
        yield* accepted(externalCall("queue.remove", "write")(tables.remove(resource)))
      })
    }
  })
)

const retryable = Effect.mapError(
  (error: { readonly message: string }) => new Retryable({ message: error.message, cause: error })
)

/** A step that comes late is refused. */
const accepted = (self: Effect.Effect<boolean, { readonly message: string }>) =>
  Effect.flatMap(retryable(self), (done) =>
    done ? Effect.void : Effect.fail(new Retryable({ message: "A later run has worked on the queue" }))
  )
