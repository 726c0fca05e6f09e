/** Objects of Stripe as far as they are read, and what the projection keeps of them. */
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { ObjectType } from "./scopes.ts"

/** The entry of an object's metadata that names the request of ours which made it. Users neither see nor set it. */
export const intentEntry = "svc_request"

const nullable = <S extends Schema.Top>(schema: S) => Schema.optional(Schema.NullOr(schema))
/** The id of another object, or that object itself where Stripe was asked for it. */
const Reference = Schema.Union([Schema.String, Schema.Struct({ id: Schema.String })])
const idOf = (reference: typeof Reference.Type | null | undefined): string | null =>
  reference === null || reference === undefined
    ? null
    : typeof reference === "string"
      ? reference
      : reference.id

const common = {
  id: Schema.String.check(Schema.isPattern(/^[A-Za-z0-9_]{1,255}$/)),
  created: Schema.Int,
  metadata: nullable(Schema.Record(Schema.String, Schema.String))
}
const Product = Schema.Struct({
  ...common,
  object: Schema.Literal("product"),
  name: Schema.String,
  description: nullable(Schema.String),
  active: Schema.Boolean
})
const Price = Schema.Struct({
  ...common,
  object: Schema.Literal("price"),
  product: Reference,
  unit_amount: nullable(Schema.Int),
  currency: Schema.String,
  recurring: nullable(Schema.Struct({ interval: Schema.String })),
  active: Schema.Boolean
})
const Customer = Schema.Struct({
  ...common,
  object: Schema.Literal("customer"),
  email: nullable(Schema.String),
  name: nullable(Schema.String)
})
const CheckoutSession = Schema.Struct({
  ...common,
  object: Schema.Literal("checkout.session"),
  mode: Schema.String,
  status: nullable(Schema.String),
  payment_status: nullable(Schema.String),
  url: nullable(Schema.String),
  expires_at: Schema.Int,
  customer: nullable(Reference)
})
const Subscription = Schema.Struct({
  ...common,
  object: Schema.Literal("subscription"),
  status: Schema.String,
  cancel_at_period_end: Schema.Boolean,
  customer: nullable(Reference),
  items: Schema.Struct({
    data: Schema.Array(
      Schema.Struct({ current_period_end: nullable(Schema.Int), price: nullable(Reference) })
    )
  })
})
const decodeAny = Schema.decodeUnknownOption(
  Schema.Union([Product, Price, Customer, CheckoutSession, Subscription])
)
const Deleted = Schema.Struct({ id: Schema.String, deleted: Schema.Literal(true) })
const isDeleted = Schema.is(Deleted)

/** What is stored of an object; views are made of it. */
export const Content = Schema.Struct({
  name: Schema.optional(Schema.NullOr(Schema.String)),
  description: Schema.optional(Schema.NullOr(Schema.String)),
  active: Schema.optional(Schema.Boolean),
  metadata: Schema.optional(Schema.Record(Schema.String, Schema.String)),
  unitAmount: Schema.optional(Schema.NullOr(Schema.Int)),
  currency: Schema.optional(Schema.String),
  interval: Schema.optional(Schema.NullOr(Schema.String)),
  email: Schema.optional(Schema.NullOr(Schema.String)),
  mode: Schema.optional(Schema.String),
  status: Schema.optional(Schema.String),
  paymentStatus: Schema.optional(Schema.NullOr(Schema.String)),
  url: Schema.optional(Schema.NullOr(Schema.String)),
  expiresAt: Schema.optional(Schema.Int),
  cancelAtPeriodEnd: Schema.optional(Schema.Boolean),
  currentPeriodEnd: Schema.optional(Schema.NullOr(Schema.Int))
})
export type Content = typeof Content.Type

export interface Seen {
  readonly type: ObjectType
  readonly processorId: string
  readonly content: Content
  /** Unix seconds. */
  readonly created: number
  /** Ids of Stripe's. */
  readonly product: string | null
  readonly customer: string | null
  readonly price: string | null
  /** The request of ours that made it, as it says itself. */
  readonly intent: string | null
}

const noReferences = { product: null, customer: null, price: null }

/** None: it is no object that a projection is kept of, or it has a shape that this release does not know. */
export const seen = (object: unknown): Option.Option<Seen> =>
  Option.map(decodeAny(object), (one): Seen => {
    const { [intentEntry]: intent, ...metadata } = one.metadata ?? {}
    const of = { processorId: one.id, created: one.created, intent: intent ?? null, ...noReferences }
    switch (one.object) {
      case "product":
        return {
          ...of,
          type: "product",
          content: { name: one.name, description: one.description ?? null, active: one.active, metadata }
        }
      case "price":
        return {
          ...of,
          type: "price",
          product: idOf(one.product),
          content: {
            unitAmount: one.unit_amount ?? null,
            currency: one.currency,
            interval: one.recurring?.interval ?? null,
            active: one.active
          }
        }
      case "customer":
        return {
          ...of,
          type: "customer",
          content: { email: one.email ?? null, name: one.name ?? null, metadata }
        }
      case "checkout.session":
        return {
          ...of,
          type: "checkout_session",
          customer: idOf(one.customer),
          content: {
            mode: one.mode,
            status: one.status ?? "open",
            paymentStatus: one.payment_status ?? null,
            url: one.url ?? null,
            expiresAt: one.expires_at
          }
        }
      case "subscription": {
        const [item] = one.items.data
        return {
          ...of,
          type: "subscription",
          customer: idOf(one.customer),
          price: idOf(item?.price),
          content: {
            status: one.status,
            cancelAtPeriodEnd: one.cancel_at_period_end,
            // Since 2025 the period is the item's (Stripe changelog, 2025-03-31.basil).
            currentPeriodEnd: item?.current_period_end ?? null
          }
        }
      }
    }
  })

/** Stripe answers so for customers that were deleted. */
export const wasDeleted = (object: unknown): boolean => isDeleted(object)

/** By the word that events have for an object. */
export const typeOfObject = (object: string | undefined): ObjectType | undefined => {
  switch (object) {
    case "product":
    case "price":
    case "customer":
    case "subscription":
      return object
    case "checkout.session":
      return "checkout_session"
    default:
      return undefined
  }
}

const List = Schema.Struct({ data: Schema.Array(Schema.Unknown), has_more: Schema.Boolean })
/** A page of a list of Stripe's. */
export const decodeList = Schema.decodeUnknownOption(List)
