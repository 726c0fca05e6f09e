/** Requests to Stripe that change something, and what becomes of them here: the answer is stored before it is given. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { fromStore, notFound, type Problem, problem } from "#src/api/problem.ts"
import type { Actor } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { type Connection, Connections, refusalText } from "./Connections.ts"
import { type Intent, type IntentRequest, Intents } from "./Intents.ts"
import { look } from "./look.ts"
import { decodeList, intentEntry, type Seen, seen } from "./objects.ts"
import { Processor } from "./Processor.ts"
import type { ProcessorError } from "./ProcessorError.ts"
import { type Projected, Projections } from "./Projections.ts"
import { listPaths, type ObjectType } from "./scopes.ts"

type Params = Readonly<Record<string, unknown>>

export interface Making extends IntentRequest {
  readonly type: ObjectType
  /** As Stripe takes them. */
  readonly params: Params
  readonly metadata: Readonly<Record<string, string>>
}

type Failure = ProcessorError | StoreUnavailable | Problem

export const notConfigured = problem(
  409,
  "payments_not_configured",
  "No Stripe account is connected to this environment; an owner connects one"
)
const reused = problem(
  409,
  "idempotency_key_reused",
  "This key came with another request before; use a new one"
)
const unreadableAnswer = problem(
  502,
  "processor_rejected",
  "Stripe answered something that this release cannot read"
)
const tooMany = problem(
  409,
  "processor_unclear",
  "Whether an earlier request made it cannot be told any more: look at Stripe, and use a new key"
)
/** Seconds, where Stripe does not say. */
const usualRetryAfter = 5
/** Seconds that Stripe's clock and ours may differ by. */
const clocksDiffer = 300
/** Milliseconds after which Stripe may have forgotten an idempotency key: it keeps them for a day at least. */
const forgottenMs = 23 * 3_600_000
/** Of a list, when what a request made is looked for. */
const mostPages = 50

export class Requests extends Context.Service<
  Requests,
  {
    /** Makes something once, whatever is killed in between, as long as tries have the same key. */
    readonly create: (
      connection: Connection,
      making: Making,
      actor: Actor
    ) => Effect.Effect<Projected, Problem>
    /** Without parameters it is deleted, or canceled. */
    readonly change: (
      connection: Connection,
      type: ObjectType,
      object: Projected,
      params: Params | undefined,
      actor: Actor
    ) => Effect.Effect<Projected, Problem>
    /** A request whose answer is not stored. */
    readonly ask: (
      connection: Connection,
      name: string,
      path: `/v1/${string}`,
      params: Params,
      intent: IntentRequest,
      actor: Actor
    ) => Effect.Effect<unknown, Problem>
    /** What failed at Stripe, for a caller. */
    readonly asProblem: (connection: Connection) => (failure: Failure) => Effect.Effect<never, Problem>
  }
>()("svc/payments/Requests") {
  static readonly layer = Layer.effect(
    Requests,
    Effect.gen(function* () {
      const connections = yield* Connections
      const intents = yield* Intents
      const processor = yield* Processor
      const projections = yield* Projections

      const asProblem = (connection: Connection) => (failure: Failure) =>
        Effect.gen(function* () {
          if (failure._tag === "Problem") return yield* failure
          if (failure._tag === "StoreUnavailable") return yield* fromStore(failure)
          if (failure.reason === "credential") yield* Effect.ignore(connections.refuse(connection))
          return yield* problemOf(failure)
        })

      const begun = Effect.fnUntraced(function* (connection: Connection, request: IntentRequest) {
        const intent = yield* intents.begin(connection, request)
        if (Option.isNone(intent)) return yield* notConfigured
        return intent.value.reused ? yield* reused : intent.value
      })
      const stored = Effect.fnUntraced(function* (
        connection: Connection,
        askedAt: Date,
        type: ObjectType,
        one: Seen,
        actor: Actor
      ) {
        const ids = yield* projections.store(connection, askedAt, [one], actor)
        const known = ids.get(one.processorId)
        if (known === undefined) return yield* notConfigured
        // A look that began later may have come back before the change took effect.
        if (!known.stored) {
          const now = yield* projections.now
          yield* look({ processor, projections }, connection, { type, id: one.processorId }, now)
        }
        const found = yield* projections.find(connection, type, known.id)
        return Option.isSome(found) ? found.value : yield* notFound(inWords[type])
      })
      /** What the intent made, by the name that the object has from it: the list is read from the newest on. */
      const made = Effect.fnUntraced(function* (connection: Connection, type: ObjectType, intent: Intent) {
        const since = Math.floor(intent.createdAt.getTime() / 1_000) - clocksDiffer
        const query = new URLSearchParams({ limit: "100", "created[gte]": String(since) })
        for (let page = 0; page < mostPages; page++) {
          const answer = yield* processor.ask(`stripe.${type}.list`, {
            key: connection.secretKey,
            method: "GET",
            path: `${listPaths[type]}?${query}`
          })
          const list = decodeList(answer)
          if (Option.isNone(list)) return yield* unreadableAnswer
          const objects = list.value.data.flatMap((one) => Option.toArray(seen(one)))
          const found = objects.find((one) => one.intent === intent.id)
          const last = objects.at(-1)
          if (found !== undefined || !list.value.has_more) return found
          if (last === undefined) return yield* unreadableAnswer
          query.set("starting_after", last.processorId)
        }
        return yield* tooMany
      })

      return Requests.of({
        asProblem,
        create: Effect.fn("payments.Requests.create")(
          function* (connection, { type, params, metadata, ...request }, actor) {
            const intent = yield* begun(connection, request)
            if (intent.processorId !== null) {
              const before = yield* projections.find(connection, type, intent.id)
              if (Option.isSome(before)) {
                yield* intents.audit(connection, intent, actor)
                return before.value
              }
            }
            const ask = (idempotencyKey: string) =>
              processor.ask(`stripe.${type}.create`, {
                key: connection.secretKey,
                method: "POST",
                path: listPaths[type],
                params: { ...params, metadata: { ...metadata, [intentEntry]: intent.id } },
                idempotencyKey
              })
            const isOld = intent.askedAt.getTime() - intent.createdAt.getTime() > forgottenMs
            const earlier = isOld ? yield* made(connection, type, intent) : undefined
            if (earlier !== undefined) return yield* stored(connection, intent.askedAt, type, earlier, actor)
            const one = yield* ask(intent.idempotencyKey).pipe(
              Effect.map(seen),
              Effect.catchIf(
                // Stripe keeps a failure of its own for the key, whether or not something was made.
                (error) => error.replayed === true,
                Effect.fnUntraced(function* () {
                  const found = yield* made(connection, type, intent)
                  if (found !== undefined) return Option.some(found)
                  return seen(yield* ask((yield* intents.anew(connection, intent)).idempotencyKey))
                })
              )
            )
            if (Option.isNone(one)) return yield* unreadableAnswer
            return yield* stored(connection, intent.askedAt, type, one.value, actor)
          },
          (self, connection) => Effect.catch(self, asProblem(connection))
        ),
        change: Effect.fn("payments.Requests.change")(
          function* (connection, type, object, params, actor) {
            const askedAt = yield* projections.now
            const path = `${listPaths[type]}/${encodeURIComponent(object.processorId)}` as const
            const answer = yield* processor
              .ask(`stripe.${type}.${params === undefined ? "delete" : "update"}`, {
                key: connection.secretKey,
                method: params === undefined ? "DELETE" : "POST",
                path,
                ...(params === undefined ? {} : { params })
              })
              .pipe(
                Effect.catchIf(
                  ({ reason }) => reason === "missing" && params === undefined,
                  // An earlier try took effect, perhaps: Stripe does not take it twice.
                  (error) =>
                    Effect.flatMap(
                      processor.ask(`stripe.${type}.get`, { key: connection.secretKey, method: "GET", path }),
                      (found) =>
                        Option.exists(seen(found), ({ content }) => content.status === "canceled")
                          ? Effect.succeed(found)
                          : Effect.fail(error)
                    )
                )
              )
            const one = seen(answer)
            if (Option.isNone(one)) return yield* unreadableAnswer
            return yield* stored(connection, askedAt, type, one.value, actor)
          },
          (self, connection) => Effect.catch(self, asProblem(connection))
        ),
        ask: Effect.fn("payments.Requests.ask")(
          function* (connection, name, path, params, request, actor) {
            const intent = yield* begun(connection, request)
            const once = (idempotencyKey: string) =>
              processor.ask(name, { key: connection.secretKey, method: "POST", path, params, idempotencyKey })
            const answer = yield* once(intent.idempotencyKey).pipe(
              Effect.catchIf(
                // What it makes is of no use to anybody whom it was not answered to: it is made again.
                (error) => error.replayed === true,
                () =>
                  Effect.flatMap(intents.anew(connection, intent), ({ idempotencyKey }) =>
                    once(idempotencyKey)
                  )
              )
            )
            yield* intents.audit(connection, intent, actor)
            return answer
          },
          (self, connection) => Effect.catch(self, asProblem(connection))
        )
      })
    })
  )
}

export const inWords: Readonly<Record<ObjectType, string>> = {
  product: "product",
  price: "price",
  customer: "customer",
  checkout_session: "checkout session",
  subscription: "subscription"
}

const problemOf = ({ reason, message, said, retryAfterSeconds }: ProcessorError): Problem => {
  switch (reason) {
    case "away":
      return problem(503, "processor_unavailable", "Stripe does not answer at the moment; try again later", {
        headers: { "retry-after": String(Math.ceil(Math.max(retryAfterSeconds ?? 0, usualRetryAfter))) }
      })
    case "busy":
      return problem(409, "idempotency_key_in_flight", `${message}; repeat it in a moment`, {
        headers: { "retry-after": "1" }
      })
    case "credential":
      return problem(409, "payments_disabled", refusalText.revoked)
    case "idempotency":
      return reused
    case "missing":
      return notFound("payment resource at Stripe any more")
    case "right":
      return problem(
        502,
        "processor_rejected",
        `${message}; give it the right at Stripe, or connect another key`
      )
    case "rejected":
      return problem(
        502,
        "processor_rejected",
        said === undefined ? message : `Stripe did not accept it: ${said}`
      )
  }
}
