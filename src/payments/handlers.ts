/** Handlers of `customerPayments.*`. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { PaymentScope } from "#schemas/customer-payments.ts"
import { answer } from "#src/api/answer.ts"
import { Cursors } from "#src/api/cursor.ts"
import { Api } from "#src/api/definition/api.ts"
import { defaultPageSize } from "#src/api/definition/fields.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { billedLate, billing, handlersOf } from "#src/api/handler.ts"
import { fromStore, invalid, notFound, type Problem, problem } from "#src/api/problem.ts"
import { targetEnvironment } from "#src/api/target.ts"
import { type Connection, Connections, refusalText } from "./Connections.ts"
import { configuration } from "./configure.ts"
import { PaymentEvents } from "./PaymentEvents.ts"
import { type Projected, Projections } from "./Projections.ts"
import { inWords, notConfigured, Requests } from "./Requests.ts"
import { redirectFault } from "./redirects.ts"
import { allows, areaOf, type ObjectType } from "./scopes.ts"
import * as view from "./view.ts"
import * as views from "./views.ts"

interface Page {
  readonly limit?: number
  readonly cursor?: string
}
type Headers = { readonly "idempotency-key"?: string }

const outside = (scope: PaymentScope): Problem =>
  problem(403, "scope_not_allowed", `The connection does not have the scope ${scope}; an owner can add it`)

const Url = Schema.Struct({ url: Schema.String })
const decodeUrl = Schema.decodeUnknownOption(Url)

/** An empty text is how Stripe is told to take a value away. */
const orEmpty = (value: string | null | undefined): string | undefined => (value === null ? "" : value)
const present = (params: Readonly<Record<string, unknown>>) =>
  Object.fromEntries(Object.entries(params).filter(([, value]) => value !== undefined && value !== null))
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
    const connections = yield* Connections
    const cursors = yield* Cursors
    const events = yield* PaymentEvents
    const projections = yield* Projections
    const requests = yield* Requests
    const { getConfig, connect, updateConfig, disconnect } = yield* configuration

    /** The connection, if it has the scope that the operation needs. Null: none is connected. */
    const connected = Effect.fnUntraced(function* (scope: PaymentScope | undefined) {
      const { orgId } = yield* RequestScope
      const { projectId, environment } = yield* targetEnvironment
      const found = yield* Effect.mapError(connections.find(orgId, projectId, environment), fromStore)
      if (Option.isNone(found)) return undefined
      const connection = found.value
      return scope !== undefined && !allows(connection.spec.credentialScopes, scope)
        ? yield* outside(scope)
        : connection
    })
    const configured = Effect.fnUntraced(function* (scope?: PaymentScope) {
      const connection = yield* connected(scope)
      yield* billing
      return connection ?? (yield* notConfigured)
    })
    /** Stripe is asked with its key. */
    const usable = (connection: Connection): Effect.Effect<Connection, Problem> =>
      connection.refusal === undefined
        ? Effect.succeed(connection)
        : Effect.fail(problem(409, "payments_disabled", refusalText[connection.refusal]))
    /** What the path names. */
    const located = Effect.fnUntraced(function* (type: ObjectType, id: string, scope: PaymentScope) {
      const connection = yield* connected(scope)
      if (connection === undefined) return yield* notFound(inWords[type])
      const found = yield* Effect.mapError(projections.find(connection, type, id), fromStore)
      if (Option.isNone(found)) return yield* notFound(inWords[type])
      yield* billing
      return { connection, object: found.value }
    })
    /** What a body names: Stripe's id of it. */
    const named = Effect.fnUntraced(function* (
      connection: Connection,
      type: ObjectType,
      id: string,
      pointer: string
    ) {
      const found = yield* Effect.mapError(projections.find(connection, type, id), fromStore)
      return Option.isSome(found)
        ? found.value.processorId
        : yield* invalid([{ pointer, message: `names no ${inWords[type]} of this environment` }])
    })
    const back = (connection: Connection, pointer: string, address: string | undefined) => {
      const fault =
        address === undefined ? undefined : redirectFault(connection.spec.allowedRedirectOrigins, address)
      return fault === undefined ? Effect.void : Effect.fail(invalid([{ pointer, message: fault }]))
    }

    const listOf = <View extends { readonly id: string }>(
      type: ObjectType,
      schema: {
        readonly Encoded: { readonly items: ReadonlyArray<View>; readonly nextCursor: string | null }
      },
      one: (object: Projected) => View
    ) =>
      billedLate(
        Effect.fnUntraced(function* ({
          query: { limit = defaultPageSize, cursor }
        }: {
          readonly query: Page
        }) {
          const connection = yield* configured(`${areaOf[type]}:read`)
          const list = `payments ${connection.orgId} ${connection.uid} ${type}`
          const [ms, id] = (yield* cursors.decode(list, cursor)) ?? []
          const after =
            ms === undefined || id === undefined ? undefined : { createdAt: new Date(Number(ms)), id }
          const found = yield* Effect.mapError(
            projections.list(connection, type, limit + 1, after),
            fromStore
          )
          const items = found.slice(0, limit)
          const last = items.at(-1)
          const nextCursor =
            found.length > limit && last !== undefined
              ? cursors.encode(list, [String(last.createdAt.getTime()), last.id])
              : null
          return answer(schema, { items: items.map(one), nextCursor })
        })
      )

    /** `describe` says what Stripe is asked for, or what of the body is at fault. */
    const create = <Payload, View>(
      type: ObjectType,
      one: (object: Projected) => View,
      describe: (
        connection: Connection,
        payload: Payload
      ) => Effect.Effect<
        {
          readonly params: Readonly<Record<string, unknown>>
          readonly metadata?: Readonly<Record<string, string>> | undefined
        },
        Problem
      >
    ) =>
      billedLate(
        Effect.fnUntraced(function* ({
          payload,
          headers
        }: {
          readonly payload: Payload
          readonly headers: Headers
        }) {
          const { caller, operation, reservation } = yield* RequestScope
          const connection = yield* usable(yield* configured(`${areaOf[type]}:write`))
          const { params, metadata = {} } = yield* describe(connection, payload)
          const made = yield* requests.create(
            connection,
            {
              type,
              operation: operation.id,
              callerKey: headers["idempotency-key"],
              id: reservation.uid,
              body: payload,
              params: present(params),
              metadata
            },
            { ...caller.actor, outcome: 201 }
          )
          return one(made)
        })
      )

    const change = <View>(
      type: ObjectType,
      id: string,
      one: (object: Projected) => View,
      describe: (before: Projected) => Readonly<Record<string, unknown>> | undefined
    ) =>
      Effect.gen(function* () {
        const { connection, object } = yield* located(type, id, `${areaOf[type]}:write`)
        const { caller } = yield* RequestScope
        const now = yield* usable(connection)
        return one(yield* requests.change(now, type, object, describe(object), caller.actor))
      })
    const get = <View>(type: ObjectType, id: string, one: (object: Projected) => View) =>
      Effect.map(located(type, id, `${areaOf[type]}:read`), ({ object }) => one(object))
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
            const items = found.slice(0, limit)
            const last = items.at(-1)
            return answer(views.EventPage, {
              items: items.map(view.eventView),
              nextCursor:
                found.length > limit && last !== undefined
                  ? cursors.encode(list, [last.position, last.id])
                  : null
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
