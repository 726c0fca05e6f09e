/** Customer payments of an environment: the owner's Stripe account, and the small part of it that apps and agents use. */
import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { CredentialScopes, RedirectOrigins, SecretKey, WebhookSecret } from "#schemas/customer-payments.ts"
import {
  Deleted,
  environmentQuery,
  Id,
  idempotencyKey,
  pageQuery,
  projectParams
} from "#src/api/definition/fields.ts"
import { group, operation, sessionOnly } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"
import * as views from "./views.ts"

const base = "/v1/orgs/:orgId/projects/:projectId/payments"
const place = { params: projectParams, query: environmentQuery } as const
const list = {
  params: projectParams,
  query: { ...environmentQuery, ...pageQuery },
  error: problems(402, 502)
} as const
const making = { ...place, headers: idempotencyKey, error: bodyProblems(402, 502) } as const
const one = <const Param extends string>(param: Param) => {
  const params = { ...projectParams, [param]: Id } as typeof projectParams & {
    readonly [K in Param]: typeof Id
  }
  return { params, query: environmentQuery } as const
}
const read = { error: problems(402, 502) } as const
const body = { error: bodyProblems(402, 502) } as const
const target = { type: "environment" } as const
/** Like everything here it needs active billing, except for ending the connection. */
const traits = { target, billing: true, apps: true } as const
const created = <S extends Schema.Top>(schema: S) => schema.pipe(HttpApiSchema.status(201))

const op = (
  name: string,
  risk: "read" | "write" | "destructive",
  role: "member" | "admin",
  summary: string,
  more: { readonly sensitive?: boolean } = {}
) => operation(`customerPayments.${name}`, risk, role, summary, { ...traits, ...more })
const ownerOp = (name: string, risk: "write" | "destructive", summary: string, billing: boolean) =>
  operation(`customerPayments.${name}`, risk, "owner", summary, {
    target,
    billing,
    sensitive: true,
    credentials: sessionOnly
  })

const { optional } = views

export const CustomerPayments = group(
  "customerPayments",
  "Payments of an app's own customers, through the Stripe account of the app's owner."
).add(
  HttpApiEndpoint.get("getConfig", base, {
    ...place,
    ...read,
    success: views.PaymentsConfig
  }).annotateMerge(op("getConfig", "read", "member", "Whether an account is connected, and how")),
  HttpApiEndpoint.put("connect", base, {
    ...place,
    ...body,
    payload: Schema.Struct({
      secretKey: SecretKey,
      webhookSecret: WebhookSecret,
      credentialScopes: CredentialScopes,
      allowedRedirectOrigins: RedirectOrigins
    }),
    success: views.PaymentsConfig
  }).annotateMerge(
    ownerOp("connect", "write", "Connect a Stripe account by a restricted key, or replace the key", true)
  ),
  HttpApiEndpoint.patch("updateConfig", base, {
    ...place,
    ...body,
    payload: Schema.Struct({
      webhookSecret: optional(WebhookSecret),
      credentialScopes: optional(CredentialScopes),
      allowedRedirectOrigins: optional(RedirectOrigins)
    }),
    success: views.PaymentsConfig
  }).annotateMerge(
    ownerOp("updateConfig", "write", "Change scopes, redirect origins or the webhook secret", true)
  ),
  HttpApiEndpoint.delete("disconnect", base, { ...place, ...read, success: Deleted }).annotateMerge(
    ownerOp(
      "disconnect",
      "destructive",
      "Disconnect the account, and delete what is stored of it; what is at Stripe stays",
      false
    )
  ),

  HttpApiEndpoint.get("listProducts", `${base}/products`, {
    ...list,
    success: views.ProductPage
  }).annotateMerge(op("listProducts", "read", "member", "List products, oldest first")),
  HttpApiEndpoint.post("createProduct", `${base}/products`, {
    ...making,
    payload: Schema.Struct(views.ProductInput),
    success: created(views.ProductView)
  }).annotateMerge(op("createProduct", "write", "admin", "Create a product")),
  HttpApiEndpoint.get("getProduct", `${base}/products/:productId`, {
    ...one("productId"),
    ...read,
    success: views.ProductView
  }).annotateMerge(op("getProduct", "read", "member", "Read a product")),
  HttpApiEndpoint.patch("updateProduct", `${base}/products/:productId`, {
    ...one("productId"),
    ...body,
    payload: Schema.Struct({ ...views.ProductInput, active: optional(Schema.Boolean) }),
    success: views.ProductView
  }).annotateMerge(op("updateProduct", "write", "admin", "Change a product, or archive it")),

  HttpApiEndpoint.get("listPrices", `${base}/prices`, { ...list, success: views.PricePage }).annotateMerge(
    op("listPrices", "read", "member", "List prices, oldest first")
  ),
  HttpApiEndpoint.post("createPrice", `${base}/prices`, {
    ...making,
    payload: Schema.Struct(views.PriceInput),
    success: created(views.PriceView)
  }).annotateMerge(op("createPrice", "write", "admin", "Create a price of a product")),
  HttpApiEndpoint.patch("updatePrice", `${base}/prices/:priceId`, {
    ...one("priceId"),
    ...body,
    payload: Schema.Struct({ active: Schema.Boolean }),
    success: views.PriceView
  }).annotateMerge(op("updatePrice", "write", "admin", "Archive a price, or bring it back")),

  HttpApiEndpoint.get("listCustomers", `${base}/customers`, {
    ...list,
    success: views.CustomerPage
  }).annotateMerge(op("listCustomers", "read", "member", "List customers, oldest first")),
  HttpApiEndpoint.post("createCustomer", `${base}/customers`, {
    ...making,
    payload: Schema.Struct(views.CustomerInput),
    success: created(views.CustomerView)
  }).annotateMerge(op("createCustomer", "write", "admin", "Create a customer")),
  HttpApiEndpoint.get("getCustomer", `${base}/customers/:customerId`, {
    ...one("customerId"),
    ...read,
    success: views.CustomerView
  }).annotateMerge(op("getCustomer", "read", "member", "Read a customer")),
  HttpApiEndpoint.patch("updateCustomer", `${base}/customers/:customerId`, {
    ...one("customerId"),
    ...body,
    payload: Schema.Struct(views.CustomerInput),
    success: views.CustomerView
  }).annotateMerge(op("updateCustomer", "write", "admin", "Change a customer")),

  HttpApiEndpoint.post("createCheckoutSession", `${base}/checkout-sessions`, {
    ...making,
    payload: Schema.Struct(views.CheckoutInput),
    success: created(views.CheckoutView)
  }).annotateMerge(op("createCheckoutSession", "write", "admin", "Create a page on which a customer pays")),
  HttpApiEndpoint.get("getCheckoutSession", `${base}/checkout-sessions/:sessionId`, {
    ...one("sessionId"),
    ...read,
    success: views.CheckoutView
  }).annotateMerge(op("getCheckoutSession", "read", "member", "Read a checkout session")),
  HttpApiEndpoint.post("createPortalSession", `${base}/billing-portal-sessions`, {
    ...making,
    payload: Schema.Struct(views.PortalInput),
    success: created(views.PortalView)
  }).annotateMerge(
    op("createPortalSession", "write", "admin", "Create a page on which a customer manages subscriptions")
  ),

  HttpApiEndpoint.get("listSubscriptions", `${base}/subscriptions`, {
    ...list,
    success: views.SubscriptionPage
  }).annotateMerge(op("listSubscriptions", "read", "member", "List subscriptions, oldest first")),
  HttpApiEndpoint.get("getSubscription", `${base}/subscriptions/:subscriptionId`, {
    ...one("subscriptionId"),
    ...read,
    success: views.SubscriptionView
  }).annotateMerge(op("getSubscription", "read", "member", "Read a subscription")),
  HttpApiEndpoint.patch("updateSubscription", `${base}/subscriptions/:subscriptionId`, {
    ...one("subscriptionId"),
    ...body,
    payload: Schema.Struct({ cancelAtPeriodEnd: Schema.Boolean }),
    success: views.SubscriptionView
  }).annotateMerge(
    op("updateSubscription", "write", "admin", "Have a subscription end with its period, or go on")
  ),
  HttpApiEndpoint.delete("cancelSubscription", `${base}/subscriptions/:subscriptionId`, {
    ...one("subscriptionId"),
    ...read,
    success: views.SubscriptionView
  }).annotateMerge(op("cancelSubscription", "destructive", "admin", "Cancel a subscription at once")),

  HttpApiEndpoint.get("listEvents", `${base}/events`, { ...list, success: views.EventPage }).annotateMerge(
    op("listEvents", "read", "member", "List events that Stripe sent, newest first, for 90 days")
  ),
  HttpApiEndpoint.get("getEvent", `${base}/events/:eventId`, {
    ...one("eventId"),
    ...read,
    success: views.EventDetail
  }).annotateMerge(op("getEvent", "read", "member", "Read an event, and what became of it")),
  HttpApiEndpoint.post("retryEvent", `${base}/events/:eventId/retry`, {
    ...one("eventId"),
    headers: idempotencyKey,
    error: problems(402, 502),
    success: views.EventDetail.pipe(HttpApiSchema.status(202))
  }).annotateMerge(op("retryEvent", "write", "admin", "Work on an event again that failed"))
)
