/** The webhook endpoint at Stripe that the platform keeps, where the key may manage endpoints. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { Connections, Ref } from "./Connections.ts"
import { decodeList } from "./objects.ts"
import { apiVersion, type Processor } from "./Processor.ts"
import { ProcessorError } from "./ProcessorError.ts"

/** What it is told of: everything that a projection is kept of. */
export const endpointEvents = [
  "product.created",
  "product.updated",
  "product.deleted",
  "price.created",
  "price.updated",
  "price.deleted",
  "customer.created",
  "customer.updated",
  "customer.deleted",
  "customer.subscription.created",
  "customer.subscription.updated",
  "customer.subscription.deleted",
  "customer.subscription.paused",
  "customer.subscription.resumed",
  "customer.subscription.trial_will_end",
  "checkout.session.completed",
  "checkout.session.expired",
  "checkout.session.async_payment_succeeded",
  "checkout.session.async_payment_failed"
] as const

/** The entry of its metadata that says whose it is. */
const owner = "svc_connection"
const path = "/v1/webhook_endpoints"

const Endpoint = Schema.Struct({
  id: Schema.String,
  url: Schema.String,
  status: Schema.String,
  enabled_events: Schema.Array(Schema.String),
  metadata: Schema.optional(Schema.Record(Schema.String, Schema.String)),
  secret: Schema.optional(Schema.String)
})
export type Endpoint = typeof Endpoint.Type
const decode = Schema.decodeUnknownOption(Endpoint)

interface Services {
  readonly processor: Processor["Service"]
  readonly connections: Connections["Service"]
}

export const isOurs = ({ metadata }: Endpoint, uid: string): boolean => metadata?.[owner] === uid

/** Whether it is told of everything. */
export const isComplete = ({ status, enabled_events: events }: Endpoint): boolean =>
  status === "enabled" && (events.includes("*") || endpointEvents.every((type) => events.includes(type)))

/** The endpoint with this address; null: there is none; undefined: the key may not see endpoints. */
export const findEndpoint = (
  processor: Processor["Service"],
  key: Redacted.Redacted,
  url: string
): Effect.Effect<Endpoint | null | undefined, ProcessorError> =>
  processor.ask("stripe.endpoint.list", { key, method: "GET", path: `${path}?limit=100` }).pipe(
    Effect.map((answer) =>
      Option.match(decodeList(answer), {
        onNone: () => undefined,
        onSome: ({ data }) =>
          data.flatMap((one) => Option.toArray(decode(one))).find((one) => one.url === url) ?? null
      })
    ),
    Effect.catchIf(
      ({ reason }) => reason === "right",
      () => Effect.succeed(undefined)
    )
  )

export const makeEndpoint = Effect.fnUntraced(function* (
  processor: Processor["Service"],
  key: Redacted.Redacted,
  { uid, url, attempt }: { readonly uid: string; readonly url: string; readonly attempt: string }
) {
  const answer = yield* processor.ask("stripe.endpoint.create", {
    key,
    method: "POST",
    path,
    params: {
      url,
      enabled_events: [...endpointEvents],
      api_version: apiVersion,
      description: "Customer payments of the platform",
      metadata: { [owner]: uid }
    },
    idempotencyKey: `svc_endpoint_${uid}_${attempt}`
  })
  const made = Option.getOrUndefined(decode(answer))
  if (made?.secret === undefined) {
    return yield* new ProcessorError({
      reason: "rejected",
      message: "Stripe made a webhook endpoint without a secret"
    })
  }
  return { id: made.id, secret: made.secret }
})

/** Has it told of everything, and switches it on. */
export const completeEndpoint = (processor: Processor["Service"], key: Redacted.Redacted, id: string) =>
  processor.ask("stripe.endpoint.update", {
    key,
    method: "POST",
    path: `${path}/${encodeURIComponent(id)}`,
    params: { enabled_events: [...endpointEvents], disabled: false }
  })

/** Finding nothing is success. */
export const deleteEndpoint = (processor: Processor["Service"], key: Redacted.Redacted, id: string) =>
  processor
    .ask("stripe.endpoint.delete", { key, method: "DELETE", path: `${path}/${encodeURIComponent(id)}` })
    .pipe(
      Effect.catchIf(
        ({ reason }) => reason === "missing",
        () => Effect.void
      )
    )

/** Takes away what the platform made, also one of which it does not know the id. A key that may not is left at that. */
export const removeEndpoint = Effect.fnUntraced(function* (
  { processor, connections }: Services,
  ref: Ref,
  key: Redacted.Redacted
): Effect.fn.Return<void, ProcessorError | StoreUnavailable> {
  const known = yield* connections.endpointOf(ref)
  const found = yield* findEndpoint(processor, key, connections.webhookUrl(ref.uid)).pipe(
    Effect.catchIf(
      ({ reason }) => reason === "credential",
      () => Effect.succeed(undefined)
    )
  )
  const ours = found !== null && found !== undefined && isOurs(found, ref.uid) ? found.id : undefined
  const ids = new Set([known, ours].filter((id) => id !== undefined))
  if (found === undefined) return
  yield* Effect.forEach(ids, (id) => deleteEndpoint(processor, key, id), { discard: true }).pipe(
    Effect.catchIf(
      ({ reason }) => reason === "right" || reason === "credential",
      () => Effect.void
    )
  )
})
