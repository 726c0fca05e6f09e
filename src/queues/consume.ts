/**
 * The loops that empty the queues: what is due is posted to the app of its environment in signed batches.
 *
 * Whoever publishes says so, and a look at all queues every few seconds finds what nobody spoke of: messages whose time
 * has come, and those of a process that vanished. A queue is worked on by as many workers as find full batches, so a
 * slow app holds up its own queue only; and an organization has its share of the batches and bytes that the process has
 * under way, so that its slow apps hold up nobody else's. Delivery is at least once: a batch whose answer was lost is sent
 * again.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as FiberSet from "effect/FiberSet"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import * as Queue from "effect/Queue"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"
import { answered } from "#src/engine/answered.ts"
import { supervise } from "#src/engine/supervise.ts"
import { makeFairShare } from "#src/loops/fair-share.ts"
import { Invocations, type InvocationTarget } from "#src/outbound/Invocations.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { signed } from "#src/outbound/signature.ts"
import { Db } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { envelope, invocationId, read, unanswered } from "./invocation.ts"
import { QueueLimits } from "./limits.ts"
import {
  type Batch,
  batchBytes,
  leaseSeconds,
  type Outcome,
  QueueDeliveries,
  type QueueRef
} from "./QueueDeliveries.ts"

/** Between looks at all queues. */
const fullLookMs = 5_000
/** Workers of one queue in one process; its slots bound those of all. */
const workersOfAQueue = 64
const crowdedMs = 200
const answerTimeoutMs = 60_000
/** An app of ours may take that long to wake. */
const wakeMs = 40_000
/** A result that the store does not take is offered again, under the lease, for so long. */
const settleWithinMs = 60_000
const settleAgain = Schedule.min([Schedule.exponential("100 millis"), Schedule.spaced("5 seconds")]).pipe(
  Schedule.jittered
)
/** A process that stops waits no longer for the store: the lease ends by itself. */
const giveBackMs = 5_000
/** Answers name every message of a batch of a thousand. */
const answerBytes = 512 * 1024

const delivered = Metric.counter("svc_queue_messages_total", {
  description: "Messages by what became of a try to deliver them",
  incremental: true
})
const batches = Metric.counter("svc_queue_batches_total", {
  description: "Batches that were posted",
  incremental: true
})

/** With an end to every wait for the store. */
const answering = (deliveries: QueueDeliveries["Service"]): QueueDeliveries["Service"] => ({
  due: (uids) => answered("tell which queues are due")(deliveries.due(uids)),
  claim: (queue) => answered("claim messages")(deliveries.claim(queue)),
  // In time for another try before the lease ends.
  renew: (batch) => answered("renew the lease of messages", leaseSeconds * 500)(deliveries.renew(batch)),
  // Short of what all tries have together.
  settle: (batch, outcomes) =>
    answered("settle messages", settleWithinMs / 2)(deliveries.settle(batch, outcomes)),
  giveBack: (batch, toOthers) =>
    answered("take messages back", giveBackMs)(deliveries.giveBack(batch, toOthers))
})

/** Over the queues as `QueueDeliveries` tells of them. */
export const loops = Layer.effectDiscard(
  Effect.gen(function* () {
    const deliveries = answering(yield* QueueDeliveries)
    const invocations = yield* Invocations
    const outbound = yield* Outbound
    const { notifications } = yield* Db
    const limits = yield* QueueLimits

    const fibers = yield* FiberSet.make<void, never>()
    const run = yield* FiberSet.runtime(fibers)()
    const wake = yield* Queue.sliding<void>(1)
    /** Queues that somebody spoke of, and when others have to be looked at, by the process's clock. */
    const woken = new Set<string>()
    const timers = new Map<string, number>()
    const workers = new Map<string, number>()
    /** Until when nobody else is called to a queue: the last one who came found nothing to do. */
    const crowded = new Map<string, number>()

    const batchShares = makeFairShare(limits.batches)
    const byteShares = makeFairShare(limits.batchBytes)
    /** Queues that found no room, by organization, in the order in which they came. */
    const parked = new Map<string, Map<string, QueueRef>>()

    const hasRoom = (org: string) => batchShares.room(org) > 0 && byteShares.room(org) >= batchBytes
    /** Room for a batch, of which nobody knows yet how large it is. False: there is none, and it waits for its turn. */
    const enter = (queue: QueueRef) => {
      if (hasRoom(queue.orgId)) {
        batchShares.take(queue.orgId)
        byteShares.take(queue.orgId, batchBytes)
        return true
      }
      const queues = parked.get(queue.orgId) ?? new Map<string, QueueRef>()
      parked.set(queue.orgId, queues.set(queue.uid, queue))
      return false
    }
    const leave = (org: string, bytes: number) => {
      batchShares.giveBack(org)
      byteShares.giveBack(org, bytes)
      callNext()
    }
    /** Room goes to whoever waits for it, before those who had some can have it again. */
    const callNext = () => {
      for (const [org, queues] of parked) {
        if (!hasRoom(org)) continue
        for (const queue of queues.values()) {
          queues.delete(queue.uid)
          if (queues.size === 0) parked.delete(org)
          return void (enter(queue) && start(queue, true))
        }
      }
    }

    const lookIn = Effect.fnUntraced(function* (uid: string, seconds: number) {
      const at = (yield* Clock.currentTimeMillis) + Math.max(0, seconds) * 1000
      timers.set(uid, Math.min(at, timers.get(uid) ?? at))
      yield* Queue.offer(wake, undefined)
    })

    const count = (outcome: string, by: number) =>
      by === 0 ? Effect.void : Metric.update(Metric.withAttributes(delivered, { outcome }), by)

    const post = Effect.fnUntraced(function* (
      batch: Batch,
      { origin, isOwn, secrets }: InvocationTarget & { readonly origin: string }
    ) {
      const body = envelope(batch)
      const id = invocationId(batch)
      // The clock of this machine may be wrong, and apps refuse what is too old.
      const timestampSeconds = batch.claimedAt / 1000
      yield* Metric.update(batches, 1)
      return yield* outbound
        .post({
          url: `${origin}${batch.path}`,
          isOwn,
          headers: { "content-type": "application/json", ...signed(secrets, { id, timestampSeconds, body }) },
          body,
          timeoutMs: answerTimeoutMs,
          maxAnswerBytes: answerBytes
        })
        .pipe(
          Effect.map((answer) => read(batch, answer)),
          Effect.catch((error) => Effect.succeed(unanswered(batch, error.message)))
        )
    })

    /** Keeps the lease while the app works. A renewal that fails leaves the batch to whoever comes after. */
    const keepLease = (batch: Batch) =>
      deliveries.renew(batch).pipe(Effect.ignore, Effect.delay((leaseSeconds * 1000) / 3), Effect.forever)

    /** Offered again for a while: left alone, the batch would be delivered once more. */
    const settle = (batch: Batch, outcomes: ReadonlyArray<Outcome>) =>
      deliveries
        .settle(batch, outcomes)
        .pipe(Effect.retry({ schedule: settleAgain }), answered("settle messages", settleWithinMs))

    const deliver = Effect.fnUntraced(function* (batch: Batch) {
      // An app that sleeps is woken first.
      const target = yield* Effect.raceFirst(
        answered(
          "tell where the app answers",
          wakeMs
        )(invocations.callable(batch.orgId, batch.environmentUid)),
        keepLease(batch)
      ).pipe(
        Effect.catch(({ message }) =>
          Effect.as(Effect.logDebug(`queue ${batch.uid} has nobody to deliver to: ${message}`), undefined)
        )
      )
      const origin = target?.origin
      // Nobody can answer, or the app did not wake in time: not a try.
      if (target === undefined || origin === undefined) {
        yield* deliveries.giveBack(batch, false)
        return false
      }
      const outcomes: ReadonlyArray<Outcome> = yield* Effect.raceFirst(
        post(batch, { ...target, origin }),
        keepLease(batch)
      )
      const { retryIn, givenUp } = yield* Effect.raceFirst(settle(batch, outcomes), keepLease(batch))
      const acked = outcomes.filter(({ outcome }) => outcome === "ack").length
      yield* count("acknowledged", acked)
      yield* count("given_up", givenUp)
      yield* count("retried", outcomes.length - acked - givenUp)
      if (retryIn !== undefined) yield* lookIn(batch.uid, retryIn)
      return true
    })

    /** One batch; false: there is nothing more to do here now. */
    const work = Effect.fnUntraced(function* (queue: QueueRef) {
      let bytes = batchBytes
      return yield* Effect.gen(function* () {
        const batch = yield* deliveries.claim(queue)
        const now = yield* Clock.currentTimeMillis
        if (batch === undefined) {
          crowded.set(queue.uid, now + crowdedMs)
          return false
        }
        const size = batch.messages.reduce((sum, { body }) => sum + Buffer.byteLength(body), 0)
        byteShares.giveBack(queue.orgId, bytes - size)
        bytes = size
        callNext()
        // There may be more than one can take.
        if (batch.full && (crowded.get(queue.uid) ?? 0) <= now) start(queue)
        return yield* deliver(batch).pipe(
          Effect.onInterrupt(() => Effect.ignore(deliveries.giveBack(batch, true)))
        )
      }).pipe(Effect.ensuring(Effect.sync(() => leave(queue.orgId, bytes))))
    })

    const worker = (queue: QueueRef, entered: boolean): Effect.Effect<void, StoreUnavailable> =>
      Effect.gen(function* () {
        let more = entered || enter(queue)
        while (more) more = (yield* work(queue)) && enter(queue)
      })

    const start = (queue: QueueRef, entered = false): void => {
      const working = workers.get(queue.uid) ?? 0
      if (working >= workersOfAQueue) {
        if (entered) leave(queue.orgId, batchBytes)
        return
      }
      workers.set(queue.uid, working + 1)
      run(
        worker(queue, entered).pipe(
          Effect.catchCause((cause) => Effect.logWarning(`queue ${queue.uid} could not be worked on`, cause)),
          Effect.ensuring(
            Effect.sync(() => {
              const left = (workers.get(queue.uid) ?? 1) - 1
              if (left === 0) {
                workers.delete(queue.uid)
                crowded.delete(queue.uid)
              } else workers.set(queue.uid, left)
            })
          )
        )
      )
    }

    const look = Effect.fnUntraced(function* (uids: ReadonlyArray<string> | undefined) {
      const found = yield* deliveries.due(uids)
      const now = yield* Clock.currentTimeMillis
      for (const queue of found) {
        if (queue.firstIn <= 0) start(queue)
        const next = queue.firstIn > 0 ? queue.firstIn : queue.firstIn + queue.wait
        if (next > 0) timers.set(queue.uid, Math.min(now + next * 1000, timers.get(queue.uid) ?? Infinity))
      }
    })

    yield* notifications("svc_queue").pipe(
      Stream.runForEach((uid) =>
        Effect.suspend(() => {
          if (uid === undefined) nextFullLook = 0
          else woken.add(uid)
          return Queue.offer(wake, undefined)
        })
      ),
      Effect.forkScoped
    )

    let nextFullLook = 0
    const step = Effect.gen(function* () {
      const now = yield* Clock.currentTimeMillis
      const due = new Set(woken)
      woken.clear()
      for (const [uid, at] of timers) {
        if (at > now) continue
        timers.delete(uid)
        due.add(uid)
      }
      if (now >= nextFullLook) {
        nextFullLook = now + fullLookMs
        yield* look(undefined)
      } else if (due.size > 0) yield* look([...due])
      let next = nextFullLook
      for (const at of timers.values()) next = Math.min(next, at)
      const sleep = next - (yield* Clock.currentTimeMillis)
      if (woken.size === 0 && sleep > 0) yield* Effect.timeoutOption(Queue.take(wake), Math.ceil(sleep))
    })
    yield* Effect.forkScoped(Effect.forever(supervise("look at the queues", step)))
  })
)

export const layer = loops.pipe(Layer.provide(QueueDeliveries.layer))
