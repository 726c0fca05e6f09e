/**
 * Requests to Stripe, by its own library. It is loaded when it is first needed: it takes longer to load than most of the
 * program. Every request is bounded in time, and one that makes something carries an idempotency key.
 */
import * as http from "node:http"
import * as https from "node:https"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import * as Semaphore from "effect/Semaphore"
import type Stripe from "stripe"
import { externalCall } from "#src/engine/external-call.ts"
import { asProcessorError, type ProcessorError } from "./ProcessorError.ts"
import { settings } from "./settings.ts"

/** The version of Stripe's API that objects and events are read in; the library's own. */
export const apiVersion = "2026-10-28.endive"

/** Of one try. The library makes two, by the same idempotency key. */
const tryMs = 10_000
const retries = 1
const longest = "30 seconds"
/** Until it is sent. */
const longestWait = "5 seconds"
const sockets = 64
/** Seconds that the timestamp of a webhook may be off, either way. */
export const toleranceSeconds = 300

export interface Ask {
  readonly key: Redacted.Redacted
  readonly method: "GET" | "POST" | "DELETE"
  /** With the query. */
  readonly path: `/v1/${string}`
  /** As the library takes them; of `POST` only. */
  readonly params?: Readonly<Record<string, unknown>>
  readonly idempotencyKey?: string
}

/** What a webhook says, as far as it is read. The object itself is asked for anew. */
export const ProcessorEvent = Schema.Struct({
  id: Schema.String.check(Schema.isPattern(/^evt_[A-Za-z0-9_]{1,200}$/)),
  type: Schema.String.check(Schema.isPattern(/^[A-Za-z0-9_.]{1,200}$/)),
  created: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 100_000_000_000 })),
  livemode: Schema.Boolean,
  data: Schema.Struct({
    object: Schema.Struct({ id: Schema.optional(Schema.String), object: Schema.optional(Schema.String) })
  })
})
export type ProcessorEvent = typeof ProcessorEvent.Type
const decodeEvent = Schema.decodeUnknownOption(ProcessorEvent)

export class Processor extends Context.Service<
  Processor,
  {
    /** `name` is a constant for logs and metrics, such as `stripe.products.create`. Answers what Stripe answered. */
    readonly ask: (name: string, request: Ask) => Effect.Effect<unknown, ProcessorError>
    /**
     * The event of a webhook, if one of the secrets signed it within the tolerance. Undefined: it did not come from who
     * knows a secret, or it is no event.
     */
    readonly verify: (
      body: Buffer,
      header: string,
      secrets: ReadonlyArray<Redacted.Redacted>
    ) => Effect.Effect<ProcessorEvent | undefined>
  }
>()("svc/payments/Processor") {
  static readonly layer = Layer.effect(
    Processor,
    Effect.gen(function* () {
      const { stripeUrl } = yield* settings
      // No more than there are sockets: what waits for one in the library is sent when its caller has long been answered.
      const turns = yield* Semaphore.make(sockets)
      let agent: http.Agent | undefined
      yield* Effect.addFinalizer(() => Effect.sync(() => agent?.destroy()))
      const load = yield* Effect.cached(
        Effect.promise(async () => {
          const { default: Library } = await import("stripe")
          const url = stripeUrl === undefined ? undefined : new URL(stripeUrl)
          const plain = url?.protocol === "http:"
          const Agent = plain ? http.Agent : https.Agent
          agent = new Agent({ keepAlive: true, maxSockets: sockets })
          // Every request names its own key; this one is nobody's.
          return new Library("none", {
            apiVersion,
            httpClient: Library.createNodeHttpClient(agent),
            maxNetworkRetries: retries,
            timeout: tryMs,
            telemetry: false,
            ...(url === undefined
              ? {}
              : {
                  host: url.hostname,
                  port: url.port === "" ? (plain ? 80 : 443) : url.port,
                  protocol: plain ? "http" : "https"
                })
          })
        })
      )

      return Processor.of({
        ask: Effect.fnUntraced(function* (name, { key, method, path, params, idempotencyKey }) {
          const stripe = yield* load
          const options = {
            apiKey: Redacted.value(key),
            ...(idempotencyKey === undefined ? {} : { idempotencyKey })
          }
          const asked = Effect.uninterruptibleMask((restore) =>
            Effect.gen(function* () {
              yield* restore(
                Effect.timeoutOrElse(turns.take(1), {
                  duration: longestWait,
                  orElse: () => Effect.fail(asProcessorError(undefined))
                })
              )
              // The library cannot be told to stop: a request has its turn until it is over.
              const answer: Promise<unknown> = stripe
                .rawRequest(method, path, params, options)
                .finally(() => Effect.runSync(turns.release(1)))
              answer.catch(() => {})
              return yield* restore(Effect.tryPromise({ try: () => answer, catch: asProcessorError }))
            })
          )
          return yield* externalCall(
            name,
            method === "GET" ? "read" : "write"
          )(
            Effect.timeoutOrElse(asked, {
              duration: longest,
              orElse: () => Effect.fail(asProcessorError(undefined))
            })
          )
        }),
        verify: Effect.fnUntraced(function* (body, header, secrets) {
          const nowMs = yield* Clock.currentTimeMillis
          // The library takes one timestamp of several, and refuses old ones only.
          const [first, ...more] = header.split(",").filter((part) => /^\s*t=/.test(part))
          if (first === undefined || more.length > 0) return undefined
          const timestamp = /^t=(\d{1,12})$/.exec(first.trim())?.[1]
          if (timestamp === undefined || Number(timestamp) - nowMs / 1_000 > toleranceSeconds)
            return undefined
          const stripe: Stripe = yield* load
          for (const secret of secrets) {
            try {
              const event: unknown = stripe.webhooks.constructEvent(
                body,
                header,
                Redacted.value(secret),
                toleranceSeconds,
                undefined,
                nowMs
              )
              const decoded = decodeEvent(event)
              return decoded._tag === "Some" ? decoded.value : undefined
            } catch {
              // Another secret may have signed it. The error quotes the body.
            }
          }
          return undefined
        })
      })
    })
  )
}
