/** What each scope of a connection stands for at Stripe. */
import type { PaymentScope } from "#schemas/customer-payments.ts"

/** Kinds of objects that a projection is kept of. */
export type ObjectType = "product" | "price" | "customer" | "checkout_session" | "subscription"

/** Lists of Stripe's, by type of object. */
export const listPaths = {
  product: "/v1/products",
  price: "/v1/prices",
  customer: "/v1/customers",
  checkout_session: "/v1/checkout/sessions",
  subscription: "/v1/subscriptions"
} as const satisfies Record<ObjectType, `/v1/${string}`>

/** The first part of the scopes of a type. */
export const areaOf = {
  product: "products",
  price: "prices",
  customer: "customers",
  checkout_session: "checkout_sessions",
  subscription: "subscriptions"
} as const satisfies Record<ObjectType, string>

export const objectTypes = ["product", "price", "customer", "checkout_session", "subscription"] as const

/** A look that only a key may take that has the scope's right. A right to write shows in no look. */
export const lookOf = (scope: PaymentScope): `/v1/${string}` => {
  const [area] = scope.split(":")
  const type = objectTypes.find((one) => areaOf[one] === area)
  return type === undefined ? "/v1/billing_portal/configurations?limit=1" : `${listPaths[type]}?limit=1`
}

export const mayRead = (scopes: ReadonlyArray<PaymentScope>, type: ObjectType): boolean =>
  scopes.some((scope) => scope.startsWith(`${areaOf[type]}:`))

/** Whether one of the scopes allows what needs `needed`. */
export const allows = (scopes: ReadonlyArray<PaymentScope>, needed: PaymentScope): boolean =>
  scopes.includes(needed) ||
  scopes.some((scope) => needed.endsWith(":read") && scope === needed.replace(/:read$/, ":write"))
