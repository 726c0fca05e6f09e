/** `Queue`: messages that wait until the app of the environment has dealt with them. */
import * as Schema from "effect/Schema"
import { warning } from "./condition.ts"
import { inputOf, withDefault } from "./input.ts"
import { defineKind } from "./kind.ts"
import { listSection, usualEnvironment } from "./manifest-mapping.ts"
import { Name } from "./names.ts"

const integer = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))
const day = 86_400

/** Batches of one queue that may be under way when `maxConcurrency` does not say. */
export const usualConcurrency = 16

const ConsumerPath = Schema.String.check(
  Schema.isPattern(/^\/(?!\/)/u, { expected: "a path that starts with exactly one slash" }),
  Schema.isMaxLength(2_048)
)

export const QueueConsumer = Schema.Struct({
  path: ConsumerPath.annotateKey({
    description: "Where the app of the environment takes batches, from its origin on"
  }),
  maxBatchSize: withDefault(integer(1, 1_000), 10, "Messages in one batch at most"),
  maxBatchWaitSeconds: withDefault(
    integer(0, 3_600),
    0,
    "How long a batch that is not full may wait for more messages"
  ),
  maxRetries: withDefault(integer(0, 100), 3, "Tries after the first one"),
  retryDelaySeconds: withDefault(integer(0, day), 30, "How long a message waits for its next try"),
  maxConcurrency: withDefault(
    Schema.NullOr(integer(1, 1_000)),
    null,
    "Batches under way at once; null leaves it to the platform"
  )
}).annotate({ identifier: "QueueConsumer" })
export type QueueConsumer = typeof QueueConsumer.Type

const RetentionSeconds = integer(60, 30 * day)
export const DeliveryDelaySeconds = integer(0, day)

export const QueueSpec = Schema.Struct({
  retentionSeconds: withDefault(RetentionSeconds, 4 * day, "How long a message is kept, delivered or not"),
  deliveryDelaySeconds: withDefault(
    DeliveryDelaySeconds,
    0,
    "How long a message waits that does not say so itself"
  ),
  deadLetterQueue: withDefault(
    Schema.NullOr(Name),
    null,
    "The queue of the same environment that gets what was given up; null: it is kept in this one"
  ),
  paused: withDefault(Schema.Boolean, false, "Takes messages and delivers none"),
  consumer: Schema.optionalKey(QueueConsumer).annotateKey({
    description: "What takes the messages; they wait until there is one"
  })
}).annotate({ identifier: "QueueSpec" })
export type QueueSpec = typeof QueueSpec.Type
/** What users may give of a queue, besides its name. */
export const QueueInput = inputOf(QueueSpec)

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
  manifest: listSection("queues", "Durable queues whose messages are posted to the app", {
    environment: usualEnvironment,
    ...QueueInput.fields
  }),
  deadlineSeconds: 300
})
