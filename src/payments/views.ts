/** What operations on customer payments take and answer. */
import * as Schema from "effect/Schema"
import { PaymentScope } from "#schemas/customer-payments.ts"
import { Id, page, Timestamp } from "#src/api/definition/fields.ts"

export const PaymentsConfig = Schema.Struct({
  status: Schema.Literals(["not_configured", "ready", "disabled"]),
  statusDetail: Schema.NullOr(Schema.String).annotate({ description: "Why it is disabled, and what to do" }),
  credentialConfigured: Schema.Boolean,
  credentialHint: Schema.NullOr(Schema.String).annotate({
    description: "The last four characters of the key"
  }),
  webhookUrl: Schema.NullOr(Schema.String.annotate({ format: "uri" })).annotate({
    description: "Where Stripe sends events"
  }),
  webhookSecretConfigured: Schema.Boolean,
  credentialScopes: Schema.Array(PaymentScope),
  allowedRedirectOrigins: Schema.Array(Schema.String),
  connectedAt: Schema.NullOr(Timestamp),
  updatedAt: Schema.NullOr(Timestamp)
}).annotate({ identifier: "CustomerPaymentsConfig" })

const storable = (text: string) =>
  text.includes("\0") || !text.isWellFormed() ? "must be Unicode text without NUL" : undefined
const text = (most: number) =>
  Schema.NonEmptyString.check(Schema.isMaxLength(most), Schema.makeFilter(storable))

/** As Stripe limits it, but with fewer entries; keys of ours are no user's. */
export const Metadata = Schema.Record(
  Schema.String.check(
    Schema.isPattern(/^(?!svc_)[A-Za-z0-9_.-]{1,40}$/u, {
      expected: "1 to 40 letters, digits, dots, dashes or underscores, not beginning with svc_"
    })
  ),
  Schema.NonEmptyString.check(Schema.isMaxLength(500), Schema.makeFilter(storable))
)
  .check(Schema.isMaxProperties(20))
  .annotate({ description: "At most 20 entries; replaces what is there" })
const MetadataView = Schema.Record(Schema.String, Schema.String)

export const optional = Schema.optionalKey
export const nullable = Schema.NullOr
const times = { createdAt: Timestamp, updatedAt: Timestamp }

export const ProductInput = {
  name: text(250),
  description: optional(nullable(text(5_000))),
  metadata: optional(Metadata)
}
export const ProductView = Schema.Struct({
  id: Id,
  name: Schema.String,
  description: nullable(Schema.String),
  active: Schema.Boolean,
  metadata: MetadataView,
  ...times
}).annotate({ identifier: "PaymentProduct" })

/** The most that Stripe takes. Some currencies, such as jpy, have no smaller unit than the one that people count in. */
const UnitAmount = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 99_999_999 })).annotate({
  description: "In the currency's smallest unit: 500 is 5.00 usd, and 500 jpy"
})
const Currency = Schema.String.check(
  Schema.isPattern(/^[a-z]{3}$/u, { expected: "three lowercase letters (ISO 4217)" })
)
export const Interval = Schema.Literals(["day", "week", "month", "year"])
export const PriceInput = {
  productId: Id,
  unitAmount: UnitAmount,
  currency: Currency,
  interval: optional(nullable(Interval).annotate({ description: "null or absent: paid once" }))
}
export const PriceView = Schema.Struct({
  id: Id,
  productId: nullable(Id).annotate({ description: "null: the product has not been seen yet" }),
  unitAmount: nullable(Schema.Int).annotate({
    description: "In the currency's smallest unit; null: the price is no fixed whole amount"
  }),
  currency: Schema.String,
  interval: nullable(Schema.String),
  active: Schema.Boolean,
  ...times
}).annotate({ identifier: "PaymentPrice" })

const Email = Schema.String.check(
  Schema.isMaxLength(512),
  Schema.isPattern(/^[^\s@]+@[^\s@]+$/u, { expected: "an e-mail address" }),
  Schema.makeFilter(storable)
)
export const CustomerInput = {
  email: optional(nullable(Email)),
  name: optional(nullable(text(256))),
  metadata: optional(Metadata)
}
export const CustomerView = Schema.Struct({
  id: Id,
  email: nullable(Schema.String),
  name: nullable(Schema.String),
  metadata: MetadataView,
  ...times
}).annotate({ identifier: "PaymentCustomer" })

/** No URI by its form: Stripe puts the id of a session where an address says so, in braces. */
const Address = Schema.String.check(Schema.isMaxLength(2_000)).annotate({
  description: "At one of the allowed redirect origins"
})
export const CheckoutMode = Schema.Literals(["payment", "subscription"])
export const CheckoutInput = {
  mode: CheckoutMode,
  lineItems: Schema.Array(
    Schema.Struct({
      priceId: Id,
      quantity: optional(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 999_999 })))
    })
  ).check(Schema.isMinLength(1), Schema.isMaxLength(20)),
  customerId: optional(Id),
  successUrl: Address,
  cancelUrl: optional(Address)
}
export const CheckoutView = Schema.Struct({
  id: Id,
  mode: Schema.String,
  status: Schema.String.annotate({ description: "open, complete or expired" }),
  paymentStatus: nullable(Schema.String),
  customerId: nullable(Id),
  url: nullable(Schema.String.annotate({ format: "uri" })).annotate({
    description: "Where the customer pays; null when it is not open any more"
  }),
  expiresAt: nullable(Timestamp),
  ...times
}).annotate({ identifier: "PaymentCheckoutSession" })

export const PortalInput = { customerId: Id, returnUrl: Address }
export const PortalView = Schema.Struct({
  customerId: Id,
  url: Schema.String.annotate({ format: "uri", description: "Where the customer manages subscriptions" }),
  createdAt: Timestamp
}).annotate({ identifier: "PaymentPortalSession" })

export const SubscriptionStatus = Schema.Literals([
  "incomplete",
  "trialing",
  "active",
  "past_due",
  "canceled",
  "unpaid"
])
export const SubscriptionView = Schema.Struct({
  id: Id,
  customerId: nullable(Id),
  priceId: nullable(Id),
  status: SubscriptionStatus,
  note: nullable(Schema.String).annotate({
    description: "Where Stripe has a finer status: which one, and what it means"
  }),
  cancelAtPeriodEnd: Schema.Boolean,
  currentPeriodEnd: nullable(Timestamp),
  ...times
}).annotate({ identifier: "PaymentSubscription" })

const event = {
  id: Id,
  type: Schema.String,
  processingStatus: Schema.Literals(["pending", "processing", "processed", "ignored", "failed"]),
  occurredAt: Timestamp,
  receivedAt: Timestamp
}
export const EventView = Schema.Struct(event).annotate({ identifier: "PaymentEvent" })
export const EventDetail = Schema.Struct({
  ...event,
  reason: nullable(Schema.String).annotate({
    description: "Why it was ignored or failed, or the last try did"
  }),
  attempts: Schema.Int,
  nextAttemptAt: nullable(Timestamp)
}).annotate({ identifier: "PaymentEventDetail" })

export const ProductPage = page(ProductView)
export const PricePage = page(PriceView)
export const CustomerPage = page(CustomerView)
export const SubscriptionPage = page(SubscriptionView)
export const EventPage = page(EventView)
