/** Queues are referred to by name within their environment: by other queues, for what they give up, and by cron jobs. */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { CronSpec } from "#schemas/cron.ts"
import { QueueSpec } from "#schemas/queue.ts"
import { Resources } from "#src/store/Resources.ts"
import { RequestScope } from "./definition/scope.ts"
import { fromStore, invalid } from "./problem.ts"
import { viewAll } from "./views.ts"

const queueSpec = Schema.decodeUnknownSync(QueueSpec)
const cronSpec = Schema.decodeUnknownSync(CronSpec)

interface Place {
  readonly projectId: string | null
  readonly environment: string | null
}

const living = Effect.fnUntraced(function* (kind: "Queue" | "Cron", { projectId, environment }: Place) {
  const { orgId } = yield* RequestScope
  const resources = yield* Resources
  const records = yield* Effect.mapError(
    resources.listKind(orgId, kind, projectId ?? "", environment ?? ""),
    fromStore
  )
  return records.filter(({ deletionRequestedAt }) => deletionRequestedAt === null)
})

/** The queues of the environment, by name, with where each sends what it gives up. */
export const deadLetterQueues = (place: Place) =>
  Effect.map(
    Effect.flatMap(living("Queue", place), (records) =>
      viewAll(records, ({ name, spec }) => [name, queueSpec(spec).deadLetterQueue] as const)
    ),
    (entries) => new Map(entries)
  )

/** The names of the cron jobs that publish to a queue. */
export const cronsOf = (place: Place, queue: string) =>
  Effect.map(
    Effect.flatMap(living("Cron", place), (records) =>
      viewAll(records, ({ name, spec }) => ({ name, target: cronSpec(spec).target }))
    ),
    (crons) =>
      crons.flatMap(({ name, target }) => (target.kind === "queue" && target.queue === queue ? [name] : []))
  )

const missing = (pointer: string, queue: string) =>
  invalid([{ pointer, message: `names the queue "${queue}", which is not in this environment` }])

/** A dead letter queue is there, and following them comes to an end. */
export const checkDeadLetters = Effect.fnUntraced(function* (
  place: Place,
  name: string,
  deadLetterQueue: string | null | undefined
) {
  if (deadLetterQueue === null || deadLetterQueue === undefined) return
  const next = yield* deadLetterQueues(place)
  if (deadLetterQueue !== name && !next.has(deadLetterQueue)) {
    return yield* missing("/deadLetterQueue", deadLetterQueue)
  }
  next.set(name, deadLetterQueue)
  const seen = new Set<string>()
  for (let at: string | null | undefined = name; typeof at === "string"; at = next.get(at)) {
    if (seen.has(at)) {
      const message = "leads back to this queue: dead letter queues must not form a circle"
      return yield* invalid([{ pointer: "/deadLetterQueue", message }])
    }
    seen.add(at)
  }
})

/** The queue that a cron job publishes to is there. */
export const checkTarget = Effect.fnUntraced(function* (
  place: Place,
  target: { readonly kind: "http" } | { readonly kind: "queue"; readonly queue: string }
) {
  if (target.kind !== "queue") return
  const queues = yield* living("Queue", place)
  if (!queues.some(({ name }) => name === target.queue)) return yield* missing("/target/queue", target.queue)
})
