/**
 * `POST /v1/payments/webhooks/{connectionId}`: where Stripe sends events. The signature is of the body as it came; an event
 * is stored once and answered, and worked on afterwards.
 */
import * as ByteSize from "effect/ByteSize"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as HttpIncomingMessage from "effect/http/HttpIncomingMessage"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import { looksLikeUid } from "#schemas/names.ts"
import { tooLarge } from "#src/api/failure.ts"
import { fromStore, internalResponse, notFound, problem, toResponse } from "#src/api/problem.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { Connections } from "./Connections.ts"
import { typeOfObject } from "./objects.ts"
import { type NewEvent, PaymentEvents } from "./PaymentEvents.ts"
import { Processor, type ProcessorEvent } from "./Processor.ts"

const longestBody = ByteSize.bytes(256 * 1024)
const path = "/v1/payments/webhooks/:connectionId"

/** How long the secrets of a connection are remembered. That it is alive is asked for every event. */
const rememberedMs = 2_000
const mostRemembered = 10_000

const unknown = notFound("connection")
const unsigned = problem(
  400,
  "invalid_signature",
  "The signature does not hold for this body and this moment"
)

interface Known {
  readonly orgId: string
  readonly live: boolean
  readonly secrets: ReadonlyArray<Redacted.Redacted>
}

/** Whoever knows the secret may have written anything: such an id is neither stored nor asked for. */
const usualId = /^[A-Za-z0-9_-]{1,255}$/

/** What the event tells of; undefined: nothing that is kept. */
const objectOf = ({ data: { object } }: ProcessorEvent): NewEvent["object"] => {
  const type = typeOfObject(object.object)
  return type !== undefined && object.id !== undefined && usualId.test(object.id)
    ? { type, id: object.id }
    : undefined
}

const whyIgnored = (event: ProcessorEvent, { live }: Known): string | undefined => {
  if (event.livemode !== live) {
    return live
      ? "It is of test mode, and the key is of live mode"
      : "It is of live mode, and the key is of test mode"
  }
  return objectOf(event) === undefined ? `Nothing is kept of what "${event.type}" tells of` : undefined
}

export const layer = Layer.unwrap(
  Effect.gen(function* () {
    const connections = yield* Connections
    const events = yield* PaymentEvents
    const processor = yield* Processor
    const remembered = new Map<string, { readonly known: Known; readonly untilMs: number }>()

    const read = Effect.fnUntraced(function* (uid: string) {
      const found = yield* connections.webhookSecrets(uid)
      remembered.delete(uid)
      if (Option.isNone(found)) return undefined
      if (remembered.size >= mostRemembered) remembered.clear()
      const untilMs = (yield* Clock.currentTimeMillis) + rememberedMs
      remembered.set(uid, { known: found.value, untilMs })
      return found.value
    })
    const recall = Effect.fnUntraced(function* (uid: string) {
      const before = remembered.get(uid)
      return before !== undefined && (yield* Clock.currentTimeMillis) < before.untilMs
        ? before.known
        : undefined
    })

    /** The event, and whose it is. Secrets may have changed since they were remembered. */
    const verified = Effect.fnUntraced(function* (uid: string, body: Buffer, header: string) {
      const before = yield* recall(uid)
      if (before !== undefined) {
        const event = yield* processor.verify(body, header, before.secrets)
        if (event !== undefined) return { event, known: before }
      }
      const known = yield* read(uid)
      if (known === undefined) return yield* unknown
      const event = yield* processor.verify(body, header, known.secrets)
      return event === undefined ? yield* unsigned : { event, known }
    })

    const receive = Effect.gen(function* () {
      const request = yield* HttpServerRequest.HttpServerRequest
      const { connectionId = "" } = yield* HttpRouter.params
      if (!looksLikeUid(connectionId)) return yield* unknown
      const uid = connectionId.toLowerCase()
      const body = yield* Effect.mapError(request.arrayBuffer, ({ reason }) =>
        reason._tag === "RequestParseError" && reason.reason === "BodyTooLarge" ? tooLarge : unsigned
      )
      const header = request.headers["stripe-signature"] ?? ""
      const { event, known } = yield* verified(uid, Buffer.from(body), header)
      const alive = yield* events.store({
        orgId: known.orgId,
        uid,
        processorId: event.id,
        type: event.type,
        occurred: event.created,
        object: objectOf(event),
        ignored: whyIgnored(event, known)
      })
      if (!alive) return yield* unknown
      return HttpServerResponse.jsonUnsafe({ received: true }, { headers: { "cache-control": "no-store" } })
    }).pipe(
      Effect.provideService(HttpIncomingMessage.MaxBodySize, longestBody),
      Effect.catchTag("Problem", toResponse),
      Effect.catchTag("StoreUnavailable", (error: StoreUnavailable) => toResponse(fromStore(error))),
      Effect.catchDefect((defect) =>
        Effect.andThen(Effect.logError("a webhook of Stripe failed unexpectedly", defect), internalResponse)
      )
    )
    return HttpRouter.add("POST", path, receive)
  })
)
