/**
 * The loop that makes deliveries: each event to each endpoint that wants it, at least once, in no particular order.
 *
 * Every try has a fiber of its own, and no endpoint has more than a few of them: one that does not answer keeps
 * its own queue waiting and nobody else's.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import * as Queue from "effect/Queue"
import * as Random from "effect/Random"
import * as Scope from "effect/Scope"
import { outside } from "#src/engine/outside.ts"
import { persistent } from "#src/engine/persistent.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { signed } from "#src/outbound/signature.ts"
import { announcements } from "#src/store/announcements.ts"
import { Db } from "#src/store/Db.ts"
import { storableText } from "#src/store/storable.ts"
import { type Claimed, Deliveries } from "./Deliveries.ts"
import { delayAfter, patienceSeconds, patienceTries, retryAfterSeconds } from "./retries.ts"

const atOnce = 256
const timeoutMs = 15_000
/** Of the answer, which nobody reads: enough to use the connection again. */
const maxAnswerBytes = 16 * 1024
/** A look even if nobody said anything, for a notification that was lost. */
const longestSleep = 30
/** Between counts of the backlog, which may be long. */
const countEvery = "15 seconds"
/** Until the key that sealed a secret may be back. */
const withoutKey = 600

const tries = Metric.counter("svc_webhook_tries_total", {
  description: "Tries to deliver an event to a webhook, by what became of them",
  incremental: true
})
const waiting = Metric.gauge("svc_webhook_waiting", {
  description: "Deliveries of webhooks that wait for a try, or for the next one"
})

export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const deliveries = yield* Deliveries
    const outbound = yield* Outbound
    const { engine: sql } = yield* Db
    // Closed after the loop has ended, which would take up again what is given back.
    const scope = yield* Effect.acquireRelease(Scope.make("parallel"), (scope, exit) =>
      Scope.close(scope, exit)
    )
    const woken = yield* announcements(sql, "svc_webhook")

    const count = (outcome: string) => Metric.update(Metric.withAttributes(tries, { outcome }), 1)

    const attempt = Effect.fnUntraced(function* (delivery: Claimed) {
      if (delivery.disabled) return yield* deliveries.giveUp(delivery)
      const secrets = yield* Effect.result(delivery.secrets)
      if (secrets._tag === "Failure") {
        yield* Effect.logWarning(`webhook ${delivery.webhookId} was not called: ${secrets.failure.message}`)
        yield* count("sealed")
        return yield* deliveries.giveBack(delivery, withoutKey)
      }
      const started = yield* Clock.currentTimeNanos
      // The try begins when it is claimed. The clock of this machine may be wrong, and receivers refuse what is too old.
      const startedAt = new Date(delivery.claimedAt).toISOString()
      const sent = yield* outbound
        .post({
          url: delivery.url,
          body: delivery.body,
          headers: {
            "content-type": "application/json",
            ...signed(secrets.success, {
              id: delivery.eventId,
              timestampSeconds: delivery.claimedAt / 1000,
              body: delivery.body
            })
          },
          timeoutMs,
          maxAnswerBytes
        })
        .pipe(outside("webhook.deliver", "write"), Effect.result)
      const durationMs = Math.round(Number((yield* Clock.currentTimeNanos) - started) / 1e6)
      const ended = delivery.claimedAt + durationMs
      const status = sent._tag === "Success" ? sent.success.status : null
      if (status !== null && status >= 200 && status < 300) {
        yield* count("delivered")
        return yield* deliveries.delivered(delivery, {
          startedAt,
          durationMs,
          statusCode: status,
          error: null
        })
      }
      const error =
        sent._tag === "Success" ? refusedWith(sent.success.status) : storableText(sent.failure.message)
      const record = { startedAt, durationMs, statusCode: status, error }
      yield* count("failed")
      if (status === 410) {
        return yield* deliveries.disable(delivery, record, "The endpoint answered 410: it is gone for good")
      }
      if (delivery.failed + 1 >= patienceTries && delivery.failingFor >= patienceSeconds) {
        return yield* deliveries.disable(delivery, record, "Nothing arrived at the endpoint for five days")
      }
      const retryAfter =
        sent._tag === "Success" ? retryAfterSeconds(sent.success.headers["retry-after"], ended) : undefined
      const againIn = delayAfter(delivery.failed + 1, yield* Random.next, retryAfter)
      return yield* deliveries.failed(delivery, record, againIn)
    })

    /** Tries under way, by endpoint. */
    const busy = new Map<string, number>()
    let underWay = 0
    const begin = (delivery: Claimed) =>
      Effect.suspend(() => {
        underWay++
        busy.set(delivery.webhookId, (busy.get(delivery.webhookId) ?? 0) + 1)
        return Effect.forkIn(
          Effect.interruptible(attempt(delivery)).pipe(
            Effect.catch((error) =>
              // The lease ends by itself, and then it is tried again.
              Effect.logWarning(`what became of the delivery ${delivery.id} was not stored: ${error.message}`)
            ),
            // Stopping: another process need not wait until the lease ends.
            Effect.onInterrupt(() => Effect.ignore(deliveries.giveBack(delivery, 0))),
            Effect.catchDefect((defect) =>
              Effect.logError(`a fault of the program: the delivery ${delivery.id} came to no result`, defect)
            ),
            Effect.ensuring(
              Effect.suspend(() => {
                underWay--
                const left = (busy.get(delivery.webhookId) ?? 1) - 1
                if (left === 0) busy.delete(delivery.webhookId)
                else busy.set(delivery.webhookId, left)
                return Queue.offer(woken, undefined)
              })
            )
          ),
          scope
        )
      })

    const step = Effect.gen(function* () {
      // Claiming and setting out are one step: what is claimed is given back when it is not tried.
      const claimed =
        underWay >= atOnce
          ? []
          : yield* Effect.uninterruptible(
              Effect.tap(deliveries.claim(busy, atOnce - underWay), (found) =>
                Effect.forEach(found, begin, { discard: true })
              )
            )
      if (claimed.length > 0) return
      const nextIn = yield* deliveries.nextIn
      // What is due and was not claimed waits for a try that is under way, whose end wakes us.
      const due = nextIn === undefined || nextIn <= 0 ? longestSleep : nextIn
      const sleep = Math.max(0.05, Math.min(underWay > 0 ? 2 : longestSleep, due))
      yield* Effect.timeoutOption(Queue.take(woken), sleep * 1000)
    })
    yield* Effect.forkScoped(Effect.forever(persistent("deliver webhooks", step)))
    const counted = Effect.tap(deliveries.waiting, (count) => Metric.update(waiting, count))
    yield* Effect.forkScoped(
      Effect.forever(Effect.delay(persistent("count what waits for webhooks", counted), countEvery))
    )
  })
)

const refusedWith = (status: number) =>
  status >= 300 && status < 400
    ? `It answered ${status}: redirects are not followed`
    : `It answered ${status} instead of 2xx`
