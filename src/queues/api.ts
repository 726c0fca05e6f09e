/** Queues of an environment, and the messages in them. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { Name } from "#schemas/names.ts"
import { countedBacklog, DeliveryDelaySeconds, Queue, QueueConsumer, QueueInput } from "#schemas/queue.ts"
import { Id, idempotencyKey, ServiceStatus, Timestamp } from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"
import { inEnvironment, resourceOperations } from "#src/api/definition/resource-group.ts"

const Consumer = Schema.Struct({
  path: Schema.String,
  maxBatchSize: Schema.Int,
  maxBatchWaitSeconds: Schema.Int,
  maxRetries: Schema.Int,
  retryDelaySeconds: Schema.Int,
  maxConcurrency: Schema.NullOr(Schema.Int)
})

export const QueueView = Schema.Struct({
  id: Id,
  name: Schema.String,
  environment: Schema.String,
  status: ServiceStatus,
  retentionSeconds: Schema.Int,
  deliveryDelaySeconds: Schema.Int,
  deadLetterQueue: Schema.NullOr(Schema.String),
  paused: Schema.Boolean.annotate({ description: "Takes messages and delivers none" }),
  consumer: Schema.NullOr(Consumer).annotate({ description: "null: messages wait until there is one" }),
  createdAt: Timestamp,
  updatedAt: Timestamp
}).annotate({ identifier: "Queue" })

export const QueueStats = Schema.Struct({
  backlog: Schema.Int.annotate({
    description: `All that was not given up, also what is delayed or delivered now. Of this and the other numbers no more than ${countedBacklog} are counted`
  }),
  delayed: Schema.Int.annotate({ description: "Waits for its time" }),
  inFlight: Schema.Int.annotate({ description: "Being delivered now" }),
  failed: Schema.Int.annotate({ description: "Given up and kept in this queue" }),
  inDeadLetterQueue: Schema.Int.annotate({ description: "Given up here and kept in another queue" }),
  oldestMessageAt: Schema.NullOr(Timestamp).annotate({
    description: `When the oldest came that was not given up; in a longer queue, of the ${countedBacklog} that are due first`
  }),
  oldestMessageAgeSeconds: Schema.Int
}).annotate({ identifier: "QueueStats" })

/** Bytes of a message's JSON: with what is signed around it, it fits into 128,000. */
export const longestMessage = 122_880

const Message = Schema.Struct({
  body: Schema.Json,
  delaySeconds: Schema.optionalKey(
    DeliveryDelaySeconds.annotate({ description: "Instead of what the queue says" })
  ),
  idempotencyKey: Schema.optionalKey(
    Schema.String.check(Schema.isPattern(/^[\x21-\x7e]{1,255}$/u)).annotate({
      description: "Of several messages with one key within 24 hours only the first is published"
    })
  )
})

export const Published = Schema.Struct({
  messages: Schema.Array(
    Schema.Struct({
      id: Id,
      duplicate: Schema.Boolean.annotate({
        description: "The key was used before; the id is of that message"
      })
    })
  )
}).annotate({ identifier: "Published" })

const queues = resourceOperations({
  group: "queues",
  kind: Queue,
  parent: inEnvironment,
  segment: "queues",
  param: "queueId",
  view: QueueView
})
const { one, params, target } = queues

export const Queues = group(
  "queues",
  "Durable queues whose messages are delivered to an environment's app."
).add(
  queues.list(),
  queues.create({ payload: Schema.Struct({ name: Name, ...QueueInput.fields }), success: QueueView }),
  queues.get(),
  queues.update({
    payload: Schema.Struct({
      ...QueueInput.fields,
      consumer: Schema.optionalKey(
        Schema.NullOr(Schema.toEncoded(QueueConsumer)).annotate({
          description: "As a whole; null takes it away"
        })
      )
    }),
    summary: "Change a queue, pause or resume its delivery"
  }),
  HttpApiEndpoint.post("publish", `${one}/messages`, {
    params,
    headers: idempotencyKey,
    payload: Schema.Struct({
      messages: Schema.Array(Message).check(Schema.isMinLength(1), Schema.isMaxLength(1_000))
    }),
    success: Published.pipe(HttpApiSchema.status(202)),
    error: bodyProblems(402)
  }).annotateMerge(
    operation("queues.publish", "write", "member", "Publish messages, all of them or none", {
      billing: true,
      target,
      longestBody: 4 * 1024 * 1024
    })
  ),
  HttpApiEndpoint.get("stats", `${one}/stats`, {
    params,
    success: QueueStats,
    error: problems()
  }).annotateMerge(operation("queues.stats", "read", "member", "Count the messages of a queue", { target })),
  HttpApiEndpoint.post("redrive", `${one}/redrive`, {
    params,
    headers: idempotencyKey,
    payload: Schema.Struct({
      limit: Schema.optionalKey(
        Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 10_000 })).annotate({
          description: "Default 1000"
        })
      )
    }),
    success: Schema.Struct({ redriven: Schema.Int }),
    error: bodyProblems()
  }).annotateMerge(
    operation(
      "queues.redrive",
      "write",
      "admin",
      "Give messages that were given up another chance: those of this queue, and those it holds for others",
      { target }
    )
  ),
  HttpApiEndpoint.post("purge", `${one}/purge`, {
    params,
    headers: idempotencyKey,
    success: Schema.Struct({ purged: Schema.Int }),
    error: problems()
  }).annotateMerge(
    operation("queues.purge", "destructive", "admin", "Throw away all messages of a queue", {
      sensitive: true,
      target
    })
  ),
  queues.delete({ summary: "Delete a queue and its messages" })
)
