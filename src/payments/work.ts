/**
 * The loop that works on events: each tells that an object changed, and the object is asked for. One look settles all
 * events of the object that were there before it.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import { type LeasedLoop, leased } from "#src/loops/leased.ts"
import { Db } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { Connections, refusalText } from "./Connections.ts"
import { look } from "./look.ts"
import { type EventJob, type EventOutcome, leaseSeconds, PaymentEvents } from "./PaymentEvents.ts"
import { Processor } from "./Processor.ts"
import { Projections } from "./Projections.ts"
import { areaOf, mayRead } from "./scopes.ts"

const atOnce = 32
/** Tries of one event: more than ten hours. */
const mostAttempts = 20
const longestPause = 3_600
/** Until a key may have been replaced, in seconds. */
const withoutKey = 300

/** Seconds until the next try, after so many that failed. */
export const pauseAfter = (attempts: number, random: number, retryAfter = 0): number =>
  Math.max(Math.min(5 * 2 ** attempts, longestPause) * (0.5 + random / 2), Math.min(retryAfter, longestPause))

const worker = Effect.gen(function* () {
  const connections = yield* Connections
  const processor = yield* Processor
  const projections = yield* Projections
  const again = (reason: string, inSeconds: number): EventOutcome => ({ _tag: "Again", reason, inSeconds })
  const waiting = (reason: string): EventOutcome => ({ _tag: "Waiting", reason, inSeconds: withoutKey })
  const failed = (reason: string): EventOutcome => ({ _tag: "Failed", reason })

  return Effect.fnUntraced(function* (job: EventJob): Effect.fn.Return<EventOutcome, StoreUnavailable> {
    const found = yield* connections.get(job)
    if (Option.isNone(found)) return { _tag: "Ignored", reason: "The account was disconnected" }
    const connection = found.value
    if (connection.refusal !== undefined) return waiting(refusalText[connection.refusal])
    if (!mayRead(connection.spec.credentialScopes, job.object.type)) {
      return { _tag: "Ignored", reason: `No scope of the connection is about ${areaOf[job.object.type]}` }
    }
    const looked = yield* Effect.result(look({ processor, projections }, connection, job.object, job.askedAt))
    if (looked._tag === "Success") {
      return looked.success === "unknown_shape"
        ? failed("Stripe answered something that this release cannot read")
        : { _tag: "Processed" }
    }
    const error = looked.failure
    if (error._tag === "StoreUnavailable") return yield* error
    switch (error.reason) {
      case "credential":
        yield* connections.refuse(connection)
        return waiting(refusalText.revoked)
      case "away":
      case "busy":
        return job.attempts + 1 >= mostAttempts
          ? failed(`${error.message}; it was tried ${mostAttempts} times`)
          : again(error.message, pauseAfter(job.attempts, yield* Random.next, error.retryAfterSeconds))
      default:
        return failed(error.message)
    }
  })
})

/** Events as jobs. */
export const eventsLoop = Effect.gen(function* () {
  const events = yield* PaymentEvents
  const { notifications } = yield* Db
  const loop: LeasedLoop<EventJob, EventOutcome> = {
    name: "payment-events",
    does: "work on events of payments",
    idOf: ({ uid, object, events: [first] }) => first?.id ?? `${uid} ${object.id}`,
    orgOf: ({ orgId }) => orgId,
    atOnce,
    // Longer than asking Stripe may take: it needs no renewal.
    leaseMs: leaseSeconds * 1_000,
    claim: events.claim,
    run: yield* worker,
    settle: events.settle,
    release: (jobs) => Effect.forEach(jobs, events.release, { discard: true }),
    nextIn: Effect.map(events.nextIn, (seconds) => (seconds === undefined ? undefined : seconds * 1_000)),
    wake: notifications("svc_payments")
  }
  return loop
})

export const layer = Layer.effectDiscard(Effect.flatMap(eventsLoop, leased))
