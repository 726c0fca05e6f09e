/**
 * The loop that converges the outbox: what waits there becomes mail that was sent.
 *
 * It follows the same rules as the reconcile loops of resources, over a table of its own: a row is claimed under a
 * lease, tried with backoff, and written only by whoever holds the lease. Delivery is at least once: a process that
 * dies between sending and writing that down sends again, under the same message id. While the mail server cannot
 * be reached nothing is tried but one mail now and then, and nothing is lost.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import * as Queue from "effect/Queue"
import * as Ref from "effect/Ref"
import { outside } from "#src/engine/outside.ts"
import { persistent } from "#src/engine/persistent.ts"
import { announcements } from "#src/store/announcements.ts"
import { Db } from "#src/store/Db.ts"
import { type Claimed, Outbox } from "./Outbox.ts"
import { Transport, type TransportError } from "./Transport.ts"

const batch = 20
const atOnce = 4
/** A look at the outbox even if nobody said anything, for a notification that was lost. */
const longestSleep = 30
/** Between tries of a mail that the server does not take now. */
const firstDelay = 15
const longestDelay = 3600
/** Between tries of a server that cannot be reached. */
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

export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const outbox = yield* Outbox
    const transport = yield* Transport
    const { engine: sql } = yield* Db

    const count = (outcome: string) => Metric.update(Metric.withAttributes(mails, { outcome }), 1)

    const send = Effect.fnUntraced(function* (mail: Claimed) {
      if (mail.expired) {
        yield* count("expired")
        yield* Effect.logWarning(`mail ${mail.id} (${mail.template}) could not be sent while it was of use`)
        return yield* outbox.failed(mail, "It could not be sent while it was of use")
      }
      const content = yield* Effect.result(mail.open)
      // The key may come back; the mail waits for it.
      if (content._tag === "Failure") {
        const { message } = content.failure
        yield* Effect.logWarning(`mail ${mail.id} (${mail.template}) was not sent: ${message}`)
        yield* count("sealed")
        return yield* outbox.later(mail, message, longestDelay)
      }
      const { subject, text } = content.success
      yield* outside(
        "mail.send",
        "write"
      )(transport.send({ id: mail.id, to: mail.recipient, createdAt: mail.createdAt, subject, text }))
      yield* count("sent")
      yield* outbox.sent(mail)
    })

    /** True: the server could not be reached. */
    const settle = Effect.fnUntraced(function* (mail: Claimed, error: TransportError, pause: number) {
      yield* Effect.logWarning(`mail ${mail.id} (${mail.template}) was not sent: ${error.message}`)
      yield* count(error._tag.toLowerCase())
      switch (error._tag) {
        case "Rejected":
          yield* outbox.failed(mail, error.message)
          return false
        case "Deferred":
          yield* outbox.later(
            mail,
            error.message,
            Math.min(longestDelay, firstDelay * 2 ** (mail.attempt - 1))
          )
          return false
        case "Unreachable":
          yield* outbox.later(mail, error.message, pause)
          return true
      }
    })

    /** Claims and sends what is due, once. */
    const round = Effect.fnUntraced(function* (pause: number) {
      const claimed = yield* outbox.claim(pause > firstPause ? 1 : batch)
      const down = yield* Ref.make(false)
      const untried = new Set(claimed)
      yield* Effect.forEach(
        claimed,
        Effect.fnUntraced(function* (mail) {
          if (yield* Ref.get(down)) return
          untried.delete(mail)
          const unreachable = yield* Effect.matchEffect(send(mail), {
            onSuccess: () => Effect.succeed(false),
            onFailure: (error) =>
              error._tag === "StoreUnavailable" ? Effect.fail(error) : settle(mail, error, pause)
          })
          if (unreachable) yield* Ref.set(down, true)
        }),
        { concurrency: atOnce, discard: true }
      ).pipe(
        // Also when this process is stopping: another one need not wait until the lease ends.
        Effect.ensuring(Effect.ignore(Effect.suspend(() => outbox.giveBack([...untried]))))
      )
      return { claimed: claimed.length, down: yield* Ref.get(down) }
    })

    const woken = yield* announcements(sql, "svc_mail")

    let pause = firstPause
    const step = Effect.gen(function* () {
      const { claimed, down } = yield* round(pause)
      const state = yield* outbox.waiting
      yield* Metric.update(waiting, state.count)
      yield* Metric.update(oldest, state.oldest)
      if (down) {
        pause = Math.min(longestPause, pause * 2)
        return yield* Effect.sleep(pause * 1000)
      }
      if (claimed > 0) {
        pause = firstPause
        return
      }
      const sleep = Math.max(0.05, Math.min(longestSleep, state.nextIn ?? longestSleep))
      yield* Effect.timeoutOption(Queue.take(woken), sleep * 1000)
    })
    yield* Effect.forkScoped(Effect.forever(persistent("work on the outbox of mail", step)))
  })
)
