/** Handlers of `customerPayments.*`. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { answer } from "#src/api/answer.ts"
import { Cursors } from "#src/api/cursor.ts"
import { Api } from "#src/api/definition/api.ts"
import { defaultPageSize } from "#src/api/definition/fields.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { billedLate, billing, handlersOf } from "#src/api/handler.ts"
import { fromStore, notFound, problem } from "#src/api/problem.ts"
import { configuration } from "./configure.ts"
import { paymentOperations } from "./operations.ts"
import { PaymentEvents } from "./PaymentEvents.ts"
import type { Projected } from "./Projections.ts"
import { Requests } from "./Requests.ts"
import * as view from "./view.ts"
import * as views from "./views.ts"

const Url = Schema.Struct({ url: Schema.String })
const decodeUrl = Schema.decodeUnknownOption(Url)

/** An empty text is how Stripe is told to take a value away. */
const orEmpty = (value: string | null | undefined): string | undefined => (value === null ? "" : value)
/** Stripe merges metadata: what is not named any more is taken away. */
const replacing = (before: Projected, metadata: Readonly<Record<string, string>> | undefined) =>
  metadata === undefined
    ? {}
    : {
        metadata: {
          ...Object.fromEntries(Object.keys(before.content.metadata ?? {}).map((key) => [key, ""])),
          ...metadata
        }
      }

export const layer = HttpApiBuilder.group(
  Api,
  "customerPayments",
  Effect.fnUntraced(function* (handlers) {
    const cursors = yield* Cursors
    const events = yield* PaymentEvents
    const requests = yield* Requests
    const { getConfig, connect, updateConfig, disconnect } = yield* configuration
    const { connected, configured, usable, located, named, back, listOf, create, change, get } =
      yield* paymentOperations
    const noEvent = notFound("event of payments")

    return handlers.handleAll(
      handlersOf(Api.groups.customerPayments)({
        getConfig,
        connect,
        updateConfig,
        disconnect,

        listProducts: listOf("product", views.ProductPage, view.productView),
        createProduct: create(
          "product",
          view.productView,
          (_, { metadata, ...params }: Schema.Struct.Type<typeof views.ProductInput>) =>
            Effect.succeed({ params, metadata })
        ),
        getProduct: billedLate(({ params }: { readonly params: { readonly productId: string } }) =>
          get("product", params.productId, view.productView)
        ),
        updateProduct: billedLate(({ params, payload }) =>
          change("product", params.productId, view.productView, (before) => {
            const { metadata, description, ...rest } = payload
            return {
              ...rest,
              ...definedOf({ description: orEmpty(description) }),
              ...replacing(before, metadata)
            }
          })
        ),

        listPrices: listOf("price", views.PricePage, view.priceView),
        createPrice: create(
          "price",
          view.priceView,
          Effect.fnUntraced(function* (
            connection,
            { productId, unitAmount, currency, interval }: Schema.Struct.Type<typeof views.PriceInput>
          ) {
            const product = yield* named(connection, "product", productId, "/productId")
            const recurring = interval === undefined || interval === null ? undefined : { interval }
            return { params: { product, unit_amount: unitAmount, currency, recurring } }
          })
        ),
        updatePrice: billedLate(({ params, payload: { active } }) =>
          change("price", params.priceId, view.priceView, () => ({ active }))
        ),

        listCustomers: listOf("customer", views.CustomerPage, view.customerView),
        createCustomer: create(
          "customer",
          view.customerView,
          (_, { metadata, ...params }: Schema.Struct.Type<typeof views.CustomerInput>) =>
            Effect.succeed({ params, metadata })
        ),
        getCustomer: billedLate(({ params }) => get("customer", params.customerId, view.customerView)),
        updateCustomer: billedLate(({ params, payload }) =>
          change("customer", params.customerId, view.customerView, (before) => {
            const { metadata, email, name } = payload
            return {
              ...definedOf({ email: orEmpty(email), name: orEmpty(name) }),
              ...replacing(before, metadata)
            }
          })
        ),

        createCheckoutSession: create(
          "checkout_session",
          (object) => view.checkoutView(0)(object),
          Effect.fnUntraced(function* (
            connection,
            {
              mode,
              lineItems,
              customerId,
              successUrl,
              cancelUrl
            }: Schema.Struct.Type<typeof views.CheckoutInput>
          ) {
            yield* back(connection, "/successUrl", successUrl)
            yield* back(connection, "/cancelUrl", cancelUrl)
            const line_items = yield* Effect.forEach(lineItems, ({ priceId, quantity = 1 }, index) =>
              Effect.map(named(connection, "price", priceId, `/lineItems/${index}/priceId`), (price) => ({
                price,
                quantity
              }))
            )
            const customer =
              customerId === undefined
                ? undefined
                : yield* named(connection, "customer", customerId, "/customerId")
            return {
              params: { mode, line_items, customer, success_url: successUrl, cancel_url: cancelUrl }
            }
          })
        ),
        getCheckoutSession: billedLate(
          Effect.fnUntraced(function* ({ params }) {
            const nowMs = yield* Clock.currentTimeMillis
            return yield* get("checkout_session", params.sessionId, view.checkoutView(nowMs))
          })
        ),
        createPortalSession: billedLate(
          Effect.fnUntraced(function* ({ payload: { customerId, returnUrl }, headers }) {
            const { caller, operation, reservation } = yield* RequestScope
            const connection = yield* usable(yield* configured("billing_portal:write"))
            yield* back(connection, "/returnUrl", returnUrl)
            const customer = yield* named(connection, "customer", customerId, "/customerId")
            const made = yield* requests.ask(
              connection,
              "stripe.portal_session.create",
              "/v1/billing_portal/sessions",
              { customer, return_url: returnUrl },
              {
                operation: operation.id,
                callerKey: headers["idempotency-key"],
                id: reservation.uid,
                body: { customerId, returnUrl }
              },
              { ...caller.actor, outcome: 201 }
            )
            const decoded = decodeUrl(made)
            if (Option.isNone(decoded))
              return yield* problem(502, "processor_rejected", "Stripe answered without an address")
            const createdAt = new Date(yield* Clock.currentTimeMillis).toISOString()
            return { customerId, url: decoded.value.url, createdAt }
          })
        ),

        listSubscriptions: listOf("subscription", views.SubscriptionPage, view.subscriptionView),
        getSubscription: billedLate(({ params }) =>
          get("subscription", params.subscriptionId, view.subscriptionView)
        ),
        updateSubscription: billedLate(({ params, payload: { cancelAtPeriodEnd } }) =>
          change("subscription", params.subscriptionId, view.subscriptionView, () => ({
            cancel_at_period_end: cancelAtPeriodEnd
          }))
        ),
        cancelSubscription: billedLate(
          Effect.fnUntraced(function* ({ params: { subscriptionId } }) {
            const scope = "subscriptions:write"
            const { connection, object } = yield* located("subscription", subscriptionId, scope)
            if (object.content.status === "canceled") return view.subscriptionView(object)
            const { caller } = yield* RequestScope
            const usableNow = yield* usable(connection)
            return view.subscriptionView(
              yield* requests.change(usableNow, "subscription", object, undefined, caller.actor)
            )
          })
        ),

        listEvents: billedLate(
          Effect.fnUntraced(function* ({ query: { limit = defaultPageSize, cursor } }) {
            const connection = yield* configured()
            const list = `payment events ${connection.orgId} ${connection.uid}`
            const [receivedAt, id] = (yield* cursors.decode(list, cursor)) ?? []
            const before = receivedAt === undefined || id === undefined ? undefined : { receivedAt, id }
            const found = yield* Effect.mapError(events.list(connection, limit + 1, before), fromStore)
            const { items, nextCursor } = cursors.page(list, found, limit, (last) => [last.position, last.id])
            return answer(views.EventPage, {
              items: items.map(view.eventView),
              nextCursor
            })
          })
        ),
        getEvent: billedLate(
          Effect.fnUntraced(function* ({ params: { eventId } }) {
            const connection = yield* connected(undefined)
            if (connection === undefined) return yield* noEvent
            const found = yield* Effect.mapError(events.find(connection, eventId), fromStore)
            if (Option.isNone(found)) return yield* noEvent
            yield* billing
            return answer(views.EventDetail, view.eventDetail(found.value))
          })
        ),
        retryEvent: billedLate(
          Effect.fnUntraced(function* ({ params: { eventId } }) {
            const { caller } = yield* RequestScope
            const connection = yield* connected(undefined)
            if (connection === undefined) return yield* noEvent
            const found = yield* Effect.mapError(events.find(connection, eventId), fromStore)
            if (Option.isNone(found)) return yield* noEvent
            yield* billing
            const actor = { ...caller.actor, outcome: 202 }
            const again = yield* Effect.mapError(events.retry(connection, eventId, actor), fromStore)
            if (Option.isSome(again)) return view.eventDetail(again.value)
            // Whoever asks twice finds it under way.
            return found.value.status === "pending" || found.value.status === "processing"
              ? view.eventDetail(found.value)
              : yield* problem(409, "event_not_failed", "Only events that failed can be worked on again")
          })
        )
      })
    )
  })
)

const definedOf = (params: Readonly<Record<string, string | undefined>>) =>
  Object.fromEntries(Object.entries(params).filter(([, value]) => value !== undefined))
