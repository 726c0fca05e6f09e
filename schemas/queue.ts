/** `Queue`: messages that wait until the app of the environment has dealt with them. */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { warning } from "./condition.ts"
import { defineKind } from "./kind.ts"
import { listSection } from "./manifest-mapping.ts"
import { Name } from "./names.ts"

const integer = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))
const day = 86_400
const byDefault = <S extends Schema.Top>(schema: S, value: S["Encoded"]) =>
  schema.pipe(Schema.withDecodingDefaultKey(Effect.succeed(value)))

/** Batches of one queue that may be under way when `maxConcurrency` does not say. */
export const usualConcurrency = 16

export const ConsumerPath = Schema.String.check(
  Schema.isPattern(/^\/(?!\/)/u, { expected: "a path that starts with exactly one slash" }),
  Schema.isMaxLength(2_048)
)

export const QueueConsumer = Schema.Struct({
  /** Where the app of the environment takes batches, from its origin on. */
  path: ConsumerPath,
  maxBatchSize: byDefault(integer(1, 1_000), 10),
  /** How long a batch that is not full may wait for more messages. */
  maxBatchWaitSeconds: byDefault(integer(0, 3_600), 0),
  /** Tries after the first one. */
  maxRetries: byDefault(integer(0, 100), 3),
  retryDelaySeconds: byDefault(integer(0, day), 30),
  /** Batches under way at once; null leaves it to the platform. */
  maxConcurrency: byDefault(Schema.NullOr(integer(1, 1_000)), null)
}).annotate({ identifier: "QueueConsumer" })
export type QueueConsumer = typeof QueueConsumer.Type

export const RetentionSeconds = integer(60, 30 * day)
export const DeliveryDelaySeconds = integer(0, day)

export const QueueSpec = Schema.Struct({
  /** How long a message is kept, delivered or not. */
  retentionSeconds: byDefault(RetentionSeconds, 4 * day),
  /** How long a message waits that does not say itself. */
  deliveryDelaySeconds: byDefault(DeliveryDelaySeconds, 0),
  /** The queue of the same environment that gets what was given up; null: it is kept here. */
  deadLetterQueue: byDefault(Schema.NullOr(Name), null),
  paused: byDefault(Schema.Boolean, false),
  consumer: Schema.optionalKey(QueueConsumer)
}).annotate({ identifier: "QueueSpec" })
export type QueueSpec = typeof QueueSpec.Type

/** Counting a long backlog takes time, which looking at it every minute must not. */
export const countedBacklog = 10_000

export const QueueStatus = Schema.Struct({
  /** Messages that wait or are being delivered; no more than 10,000 are counted here. */
  backlog: Schema.Int,
  /** Messages that were given up and are kept. */
  failed: Schema.Int,
  oldestMessageAt: Schema.NullOr(Schema.String),
  /** Batches that may be under way at once. */
  concurrency: Schema.Int
}).annotate({ identifier: "QueueStatus" })
export type QueueStatus = typeof QueueStatus.Type

export const Queue = defineKind({
  name: "Queue",
  summary: "A durable queue whose messages are posted to the app in signed batches.",
  scope: "environment",
  spec: QueueSpec,
  status: QueueStatus,
  fields: Object.keys(QueueSpec.fields),
  immutable: [],
  internal: [],
  generated: [],
  references: [
    {
      path: "/deadLetterQueue",
      kind: "Queue",
      by: "name",
      required: true,
      acyclic: true,
      listed: true
    }
  ],
  singleton: false,
  deleteRole: "owner",
  reasons: {
    NoDeadLetterQueue: warning("The dead letter queue is not there"),
    NoOrigin: warning("The environment does not say where its app answers; messages are kept until it does")
  },
  manifest: listSection("queues"),
  deadlineSeconds: 300
})
