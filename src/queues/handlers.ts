/** Handlers of `queues.*`. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { Queue, QueueSpec } from "#schemas/queue.ts"
import { answer } from "#src/api/answer.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { billedLate, billing, handlersOf } from "#src/api/handler.ts"
import { fromStore, invalid, notFound, problem } from "#src/api/problem.ts"
import { ReconcileNow } from "#src/api/ReconcileNow.ts"
import { resourceHandlers } from "#src/api/resource-handlers.ts"
import { targetRecord } from "#src/api/target.ts"
import { serviceStatus } from "#src/api/views.ts"
import { reservedAt } from "#src/store/Reservation.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ListedRecord } from "#src/store/records.ts"
import { longestMessage, QueueStats, QueueView } from "./api.ts"
import { Messages } from "./Messages.ts"

const decodeSpec = Schema.decodeUnknownSync(QueueSpec)

/** How long a creation waits for the queue to deliver. It takes messages before. */
const patience = "5 seconds"

const queueView = (record: ListedRecord) => {
  const { consumer, ...spec } = decodeSpec(record.spec)
  return {
    id: record.uid,
    name: record.name,
    environment: record.environment ?? "",
    status: serviceStatus(record),
    ...spec,
    consumer: consumer ?? null,
    createdAt: record.createdAt.toISOString(),
    updatedAt: record.updatedAt.toISOString()
  }
}

export const layer = HttpApiBuilder.group(
  Api,
  "queues",
  Effect.fnUntraced(function* (handlers) {
    const resources = yield* Resources
    const messages = yield* Messages
    const engine = yield* ReconcileNow
    const queues = yield* resourceHandlers(Queue, {
      view: QueueView,
      viewer: () => Effect.succeed(queueView)
    })
    return handlers.handleAll(
      handlersOf(Api.groups.queues)({
        list: queues.list,
        create: queues.createAnd(
          ({ payload: { name, ...spec } }) => Effect.succeed({ name, spec }),
          Effect.fnUntraced(function* ({ orgId, uid }) {
            yield* Effect.mapError(engine.reconcileNow(orgId, uid, patience), fromStore)
            const record = yield* Effect.mapError(resources.get(orgId, uid), fromStore)
            return Option.isSome(record) ? queueView(record.value) : yield* notFound("queue")
          })
        ),
        get: queues.get,
        update: queues.update(({ payload: { consumer, ...rest } }) =>
          Effect.succeed(({ consumer: current, ...spec }) => {
            const next = consumer === undefined ? current : (consumer ?? undefined)
            return { ...spec, ...rest, ...(next === undefined ? {} : { consumer: next }) }
          })
        ),
        publish: billedLate(
          Effect.fnUntraced(function* ({ payload }) {
            const { orgId, caller, reservation } = yield* RequestScope
            const record = yield* targetRecord
            const { deliveryDelaySeconds } = decodeSpec(record.spec)
            const bodies = payload.messages.map(({ body }) => JSON.stringify(body))
            const faults = bodies.flatMap((body, index) =>
              Buffer.byteLength(body) <= longestMessage
                ? []
                : [
                    {
                      pointer: `/messages/${index}/body`,
                      message: `must be at most ${longestMessage} bytes of JSON`
                    }
                  ]
            )
            if (faults.length > 0) return yield* invalid(faults)
            yield* billing
            const published = yield* Effect.mapError(
              messages.publish(
                orgId,
                record.uid,
                payload.messages.map(({ delaySeconds, idempotencyKey }, index) => ({
                  body: bodies[index] ?? "null",
                  delaySeconds: delaySeconds ?? deliveryDelaySeconds,
                  ...(idempotencyKey === undefined ? {} : { key: idempotencyKey })
                })),
                { ...caller.actor, outcome: 202 },
                reservation
              ),
              (error) =>
                error._tag === "QueueFull" ? problem(409, "queue_full", error.message) : fromStore(error)
            )
            if (published.length === 0) {
              return yield* problem(409, "being_deleted", "The queue is being deleted")
            }
            return { messages: published }
          })
        ),
        stats: Effect.fnUntraced(function* () {
          const { orgId } = yield* RequestScope
          const { uid } = yield* targetRecord
          const { oldestMessageAt, ...counts } = yield* Effect.mapError(messages.stats(orgId, uid), fromStore)
          return answer(QueueStats, {
            ...counts,
            oldestMessageAt: oldestMessageAt === null ? null : oldestMessageAt.toISOString()
          })
        }),
        redrive: Effect.fnUntraced(function* ({ payload }) {
          const { orgId, caller, reservation } = yield* RequestScope
          const { uid } = yield* targetRecord
          const redriven = yield* Effect.mapError(
            messages.redrive(orgId, uid, payload.limit ?? 1_000, caller.actor, reservation),
            fromStore
          )
          return { redriven }
        }),
        purge: Effect.fnUntraced(function* () {
          const { orgId, caller, reservation } = yield* RequestScope
          const { uid } = yield* targetRecord
          // An earlier try may have purged it: what came since is not what this request is about.
          const until = reservation.again ? reservedAt(reservation) : undefined
          return {
            purged: yield* Effect.mapError(messages.purge(orgId, uid, caller.actor, until), fromStore)
          }
        }),
        delete: queues.delete()
      })
    )
  })
)
