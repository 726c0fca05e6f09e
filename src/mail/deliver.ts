/**
 * The loop that empties the outbox: what waits there becomes mail that was sent.
 *
 * Delivery is at least once: a process that dies between sending and writing that down sends again, under the same
 * message id. While the mail server cannot be reached nothing is tried but one mail now and then, and nothing is lost.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import { answered } from "#src/engine/answered.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { type LeasedLoop, leased } from "#src/loops/leased.ts"
import { periodic } from "#src/loops/periodic.ts"
import { Db } from "#src/store/Db.ts"
import { type Claimed, leaseSeconds, Outbox } from "./Outbox.ts"
import { Transport, type TransportError } from "./Transport.ts"

const atOnce = 4
/** Between tries of a mail that the server does not take now, in seconds. */
const firstDelay = 15
const longestDelay = 3600
/** Between tries of a server that cannot be reached, in seconds. */
const firstPause = 1
const longestPause = 60

const mails = Metric.counter("svc_mail_total", {
  description: "Mails by what became of a try to send them",
  incremental: true
})
const waiting = Metric.gauge("svc_mail_waiting", { description: "Mails that wait to be sent" })
const oldest = Metric.gauge("svc_mail_oldest_seconds", {
  description: "How long the oldest mail has waited to be sent"
})

/** What a try to send a mail came to. */
export type Outcome =
  | { readonly _tag: "Sent" }
  | { readonly _tag: "Failed"; readonly why: string }
  | { readonly _tag: "Later"; readonly why: string; readonly seconds: number }

const count = (outcome: string) => Metric.update(Metric.withAttributes(mails, { outcome }), 1)

/** The outbox as jobs. */
export const outboxLoop = Effect.gen(function* () {
  const outbox = yield* Outbox
  const transport = yield* Transport
  const { notifications } = yield* Db

  /** Mails that the server may have taken, whatever became of the try. */
  const begun = new WeakSet<Claimed>()
  /** The server could not be reached: one mail at a time tries it, `pause` seconds apart. */
  let pause = firstPause
  let restUntil = 0
  let probing = false
  const isDown = () => pause > firstPause
  const reached = Effect.sync(() => {
    pause = firstPause
    restUntil = 0
  })
  const unreachable = Effect.map(Clock.currentTimeMillis, (now) => {
    const seconds = pause
    // Of several that are under way when it goes away only the first one counts.
    if (now >= restUntil) pause = Math.min(longestPause, pause * 2)
    restUntil = now + pause * 1000
    return seconds
  })

  const after = Effect.fnUntraced(function* (mail: Claimed, error: TransportError) {
    yield* Effect.logWarning(`mail ${mail.id} (${mail.template}) was not sent: ${error.message}`)
    yield* count(error._tag.toLowerCase())
    const why = error.message
    if (error._tag === "Unreachable") {
      return { _tag: "Later", why, seconds: yield* unreachable } satisfies Outcome
    }
    yield* reached
    if (error._tag === "Rejected") return { _tag: "Failed", why } satisfies Outcome
    const seconds = Math.min(longestDelay, firstDelay * 2 ** (mail.attempt - 1))
    return { _tag: "Later", why, seconds } satisfies Outcome
  })

  const send = Effect.fnUntraced(function* (mail: Claimed): Effect.fn.Return<Outcome> {
    if (mail.expired) {
      yield* count("expired")
      yield* Effect.logWarning(`mail ${mail.id} (${mail.template}) could not be sent while it was of use`)
      return { _tag: "Failed", why: "It could not be sent while it was of use" }
    }
    const content = yield* Effect.result(mail.open)
    // The key may come back; the mail waits for it.
    if (content._tag === "Failure") {
      const { message } = content.failure
      yield* Effect.logWarning(`mail ${mail.id} (${mail.template}) was not sent: ${message}`)
      yield* count("sealed")
      return { _tag: "Later", why: message, seconds: longestDelay }
    }
    const { subject, text } = content.success
    begun.add(mail)
    const parcel = { id: mail.id, to: mail.recipient, createdAt: mail.createdAt, subject, text }
    const sent = yield* transport.send(parcel).pipe(externalCall("mail.send", "write"), Effect.result)
    if (sent._tag === "Failure") return yield* after(mail, sent.failure)
    yield* reached
    yield* count("sent")
    return { _tag: "Sent" }
  })

  const loop: LeasedLoop<Claimed, Outcome> = {
    name: "mail",
    does: "work on the outbox of mail",
    idOf: ({ id }) => id,
    atOnce,
    // Longer than a try takes: it needs no renewal.
    leaseMs: leaseSeconds * 1000,
    claim: Effect.fnUntraced(function* ({ most }) {
      if (probing || (yield* Clock.currentTimeMillis) < restUntil) return []
      const alone = isDown()
      const claimed = yield* outbox.claim(alone ? 1 : most)
      probing = alone && claimed.length > 0
      return claimed
    }),
    run: (mail) =>
      Effect.ensuring(
        send(mail),
        Effect.sync(() => {
          probing = false
        })
      ),
    settle: (mail, outcome) => {
      switch (outcome._tag) {
        case "Sent":
          return outbox.sent(mail)
        case "Failed":
          return outbox.failed(mail, outcome.why)
        case "Later":
          return outbox.later(mail, outcome.why, outcome.seconds)
      }
    },
    // One that was begun may have arrived, and waits for the end of its lease.
    release: (mails) => outbox.giveBack(mails.filter((mail) => !begun.has(mail))),
    nextIn: Effect.gen(function* () {
      const { nextIn } = yield* outbox.waiting
      if (nextIn === undefined) return undefined
      return Math.max(nextIn * 1000, restUntil - (yield* Clock.currentTimeMillis))
    }),
    wake: notifications("svc_mail")
  }
  return loop
})

const countWaiting = Effect.gen(function* () {
  const state = yield* answered("count the mail that waits")((yield* Outbox).waiting)
  yield* Metric.update(waiting, state.count)
  yield* Metric.update(oldest, state.oldest)
})

export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    yield* leased(yield* outboxLoop)
    yield* periodic({ does: "count the mail that waits", every: "30 seconds" }, countWaiting)
  })
)
