/**
 * The loop that compares everything with Stripe's lists now and then: it finds what no webhook told of. A job is one page
 * of one list, so that a large account holds up nobody.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import { type LeasedLoop, leased } from "#src/loops/leased.ts"
import { Db } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import {
  type ComparisonJob,
  type ComparisonOutcome,
  Comparisons,
  leaseSeconds,
  type Position
} from "./Comparisons.ts"
import { type Connection, Connections } from "./Connections.ts"
import { look } from "./look.ts"
import { decodeList, seen } from "./objects.ts"
import { Processor } from "./Processor.ts"
import { ProcessorError } from "./ProcessorError.ts"
import { Projections } from "./Projections.ts"
import { listPaths, mayRead, type ObjectType, objectTypes } from "./scopes.ts"
import { settings } from "./settings.ts"

const atOnce = 4
const pageSize = 100
/** Objects that are in no list any more and are asked for one by one, in one page. */
const mostUnlisted = 50
const lookedUpAtOnce = 4
/** Seconds until Stripe is asked again that did not answer. */
const pause = 60
/** Checkout sessions end within a day, so older ones change no more. */
const sessionsSeconds = 3 * 86_400

const queryOf = (type: ObjectType, after: string | null, since: Date): string => {
  const query = new URLSearchParams({ limit: String(pageSize) })
  if (after !== null) query.set("starting_after", after)
  if (type === "subscription") query.set("status", "all")
  if (type === "checkout_session") {
    query.set("created[gte]", String(Math.floor(since.getTime() / 1_000) - sessionsSeconds))
  }
  return query.toString()
}

const comparer = Effect.gen(function* () {
  const connections = yield* Connections
  const processor = yield* Processor
  const projections = yield* Projections
  const { compareSeconds } = yield* settings

  /** Stores one page, and answers where the next one begins; undefined: it was the last. */
  const page = Effect.fnUntraced(function* (
    connection: Connection,
    { type, after }: Position,
    { since, askedAt }: ComparisonJob
  ) {
    const answer = yield* processor.ask(`stripe.${type}.list`, {
      key: connection.secretKey,
      method: "GET",
      path: `${listPaths[type]}?${queryOf(type, after, since)}`
    })
    const list = decodeList(answer)
    if (Option.isNone(list)) return undefined
    const objects = list.value.data.flatMap((one) => Option.toArray(seen(one)))
    yield* projections.store(connection, askedAt, objects)
    const last = objects.at(-1)
    return list.value.has_more && last !== undefined ? { type, after: last.processorId } : undefined
  })
  const unlisted = Effect.fnUntraced(function* (
    connection: Connection,
    type: ObjectType,
    job: ComparisonJob
  ) {
    if (type === "checkout_session") return
    const ids = yield* projections.notSeenSince(connection, type, job.since, mostUnlisted)
    yield* Effect.forEach(
      ids,
      (id) => look({ processor, projections }, connection, { type, id }, job.askedAt),
      { concurrency: lookedUpAtOnce, discard: true }
    )
  })

  return Effect.fnUntraced(function* (
    job: ComparisonJob
  ): Effect.fn.Return<ComparisonOutcome, StoreUnavailable> {
    const over = { position: null, inSeconds: compareSeconds * (0.8 + 0.4 * (yield* Random.next)) }
    const found = yield* connections.get(job)
    if (Option.isNone(found) || found.value.refusal !== undefined) return over
    const connection = found.value
    const types = objectTypes.filter((type) => mayRead(connection.spec.credentialScopes, type))
    const [first] = types
    if (first === undefined) return over
    const position = job.position ?? { type: first, after: null }
    const next = types[types.indexOf(position.type) + 1]
    const step = Effect.gen(function* () {
      const more = yield* page(connection, position, job)
      if (more !== undefined) return { position: more, inSeconds: 0 }
      yield* unlisted(connection, position.type, job)
      return next === undefined ? over : { position: { type: next, after: null }, inSeconds: 0 }
    })
    return yield* Effect.catchIf(
      step,
      (error) => error instanceof ProcessorError,
      (error): Effect.Effect<ComparisonOutcome, StoreUnavailable> => {
        if (error.reason === "credential") return Effect.as(connections.refuse(connection), over)
        const waits = error.reason === "away" || error.reason === "busy"
        // A page that cannot be had keeps no other from being compared.
        if (waits)
          return Effect.succeed({ position, inSeconds: Math.max(pause, error.retryAfterSeconds ?? 0) })
        return Effect.succeed(
          next === undefined ? over : { position: { type: next, after: null }, inSeconds: 0 }
        )
      }
    )
  })
})

/** Pages as jobs. */
export const comparisonsLoop = Effect.gen(function* () {
  const comparisons = yield* Comparisons
  const { notifications } = yield* Db
  const loop: LeasedLoop<ComparisonJob, ComparisonOutcome> = {
    name: "payment-comparisons",
    does: "compare payments with Stripe",
    idOf: ({ uid }) => uid,
    orgOf: ({ orgId }) => orgId,
    atOnce,
    // Longer than a page and what is looked up after it may take: it needs no renewal.
    leaseMs: leaseSeconds * 1_000,
    claim: comparisons.claim,
    run: yield* comparer,
    settle: comparisons.settle,
    release: (jobs) =>
      Effect.forEach(jobs, (job) => comparisons.settle(job, { position: job.position, inSeconds: 0 }), {
        discard: true
      }),
    nextIn: Effect.map(comparisons.nextIn, (seconds) =>
      seconds === undefined ? undefined : seconds * 1_000
    ),
    wake: notifications("svc_payment_comparisons")
  }
  return loop
})

export const layer = Layer.effectDiscard(Effect.flatMap(comparisonsLoop, leased))
