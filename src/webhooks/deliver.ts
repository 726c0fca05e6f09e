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
import * as Random from "effect/Random"
import { answered } from "#src/engine/answered.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { type LeasedLoop, leased } from "#src/loops/leased.ts"
import { periodic } from "#src/loops/periodic.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { signed } from "#src/outbound/signature.ts"
import { storableText } from "#src/storable.ts"
import { Db } from "#src/store/Db.ts"
import type { Attempt } from "./DeliveryLog.ts"
import { delayAfter, patienceSeconds, patienceTries, retryAfterSeconds } from "./retries.ts"
import { type Claimed, leaseSeconds, WebhookDeliveries } from "./WebhookDeliveries.ts"

const atOnce = 256
const timeoutMs = 15_000
/** Of the answer, which nobody reads: enough to use the connection again. */
const maxAnswerBytes = 16 * 1024
/** Between counts of the backlog, which may be long. */
const countEvery = "30 seconds"
/** Until the key that sealed a secret may be back, in seconds. */
const withoutKey = 600

const tries = Metric.counter("svc_webhook_tries_total", {
  description: "Tries to deliver an event to a webhook, by what became of them",
  incremental: true
})
const waiting = Metric.gauge("svc_webhook_waiting", {
  description: "Deliveries of webhooks that wait for a try, or for the next one"
})

/** What a try came to. */
export type Outcome =
  | { readonly _tag: "Delivered"; readonly attempt: Attempt }
  /** `againIn`: seconds; undefined: it was the last try. */
  | { readonly _tag: "Failed"; readonly attempt: Attempt; readonly againIn: number | undefined }
  /** Nothing is sent to the endpoint any more. */
  | { readonly _tag: "Disable"; readonly attempt: Attempt; readonly reason: string }
  | { readonly _tag: "Untried"; readonly againIn: number }
  /** The endpoint was disabled meanwhile. */
  | { readonly _tag: "GivenUp" }

const count = (outcome: string) => Metric.update(Metric.withAttributes(tries, { outcome }), 1)

const attempt = Effect.fnUntraced(function* (delivery: Claimed): Effect.fn.Return<Outcome, never, Outbound> {
  if (delivery.disabled) return { _tag: "GivenUp" }
  const outbound = yield* Outbound
  const secrets = yield* Effect.result(delivery.secrets)
  if (secrets._tag === "Failure") {
    yield* Effect.logWarning(`webhook ${delivery.webhookId} was not called: ${secrets.failure.message}`)
    yield* count("sealed")
    return { _tag: "Untried", againIn: withoutKey }
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
    .pipe(externalCall("webhook.deliver", "write"), Effect.result)
  const durationMs = Math.round(Number((yield* Clock.currentTimeNanos) - started) / 1e6)
  const ended = delivery.claimedAt + durationMs
  const statusCode = sent._tag === "Success" ? sent.success.status : null
  if (statusCode !== null && statusCode >= 200 && statusCode < 300) {
    yield* count("delivered")
    return { _tag: "Delivered", attempt: { startedAt, durationMs, statusCode, error: null } }
  }
  const error =
    sent._tag === "Success" ? refusedWith(sent.success.status) : storableText(sent.failure.message)
  const record = { startedAt, durationMs, statusCode, error }
  yield* count("failed")
  if (statusCode === 410) {
    return { _tag: "Disable", attempt: record, reason: "The endpoint answered 410: it is gone for good" }
  }
  if (delivery.failed + 1 >= patienceTries && delivery.failingFor >= patienceSeconds) {
    return { _tag: "Disable", attempt: record, reason: "Nothing arrived at the endpoint for five days" }
  }
  const retryAfter =
    sent._tag === "Success" ? retryAfterSeconds(sent.success.headers["retry-after"], ended) : undefined
  const againIn = delayAfter(delivery.failed + 1, yield* Random.next, retryAfter)
  return { _tag: "Failed", attempt: record, againIn }
})

/** Deliveries as jobs. */
export const deliveriesLoop = Effect.gen(function* () {
  const deliveries = yield* WebhookDeliveries
  const { notifications } = yield* Db
  const loop: LeasedLoop<Claimed, Outcome, Outbound> = {
    name: "webhooks",
    does: "deliver webhooks",
    idOf: ({ id }) => id,
    orgOf: ({ orgId }) => orgId,
    atOnce,
    // Longer than a try takes: it needs no renewal.
    leaseMs: leaseSeconds * 1000,
    claim: deliveries.claim,
    run: attempt,
    settle: (delivery, outcome) => {
      switch (outcome._tag) {
        case "Delivered":
          return deliveries.delivered(delivery, outcome.attempt)
        case "Failed":
          return deliveries.failed(delivery, outcome.attempt, outcome.againIn)
        case "Disable":
          return deliveries.disable(delivery, outcome.attempt, outcome.reason)
        case "Untried":
          return deliveries.giveBack(delivery, outcome.againIn)
        case "GivenUp":
          return deliveries.giveUp(delivery)
      }
    },
    release: (claimed) => Effect.forEach(claimed, (one) => deliveries.giveBack(one, 0), { discard: true }),
    nextIn: Effect.map(deliveries.nextIn, (seconds) => (seconds === undefined ? undefined : seconds * 1000)),
    wake: notifications("svc_webhook")
  }
  return loop
})

const countWaiting = Effect.gen(function* () {
  const deliveries = yield* WebhookDeliveries
  yield* Metric.update(waiting, yield* answered("count what waits for webhooks")(deliveries.waiting))
})

export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    yield* leased(yield* deliveriesLoop)
    yield* periodic({ does: "count what waits for webhooks", every: countEvery }, countWaiting)
  })
)

const refusedWith = (status: number) =>
  status >= 300 && status < 400
    ? `It answered ${status}: redirects are not followed`
    : `It answered ${status} instead of 2xx`
