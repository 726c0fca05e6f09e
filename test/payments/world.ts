/** A control plane with a stand-in for Stripe, and connections to it. */
import { randomBytes } from "node:crypto"
import { assert } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Settings } from "#src/config.ts"
import { type Answer, Plane, type RequestOptions, testPlane } from "#test/setup/control-plane.ts"
import { type StandIn, stripeStandIn } from "./stripe/stand-in.ts"

export class Stripe extends Context.Service<Stripe, StandIn>()("test/Stripe") {}

export const paymentsWorld = (
  settings: Partial<Settings> = {},
  variables: Readonly<Record<string, string>> = {}
) =>
  Layer.unwrap(
    Effect.map(stripeStandIn, (standIn) =>
      Layer.merge(
        testPlane(settings, { SVC_STRIPE_URL: standIn.url, ...variables }),
        Layer.succeed(Stripe, standIn)
      )
    )
  )

export const allScopes = [
  "products:write",
  "prices:write",
  "customers:write",
  "checkout_sessions:write",
  "subscriptions:write",
  "billing_portal:write"
]

export interface Shop {
  /** Path of the operations. */
  readonly base: string
  readonly project: string
  readonly webhookUrl: string
  readonly uid: string
  readonly secretKey: string
  readonly webhookSecret: string
  /** As an admin's key, unless told otherwise. */
  readonly call: (method: string, path: string, options?: RequestOptions) => Effect.Effect<Answer>
  /** Sends an event, signed; answers the status. */
  readonly send: (payload: string, options?: { secret?: string; header?: string }) => Effect.Effect<number>
}

export const newSecret = (): string => `whsec_${randomBytes(16).toString("hex")}`

let projects = 0

/** A project of its own with an account connected, which no other shop has. */
export const newShop = Effect.fnUntraced(function* (
  connection: {
    readonly scopes?: ReadonlyArray<string>
    readonly secretKey?: string
    readonly account?: string
  } = {}
) {
  const { call, session, url } = yield* Plane
  const stripe = yield* Stripe
  const project = `pay-${++projects}-${randomBytes(3).toString("hex")}`
  const made = yield* call("POST", "/v1/orgs/main/projects", { body: { name: project, slug: project } })
  assert.strictEqual(made.status, 201, made.text)
  const base = `/v1/orgs/main/projects/${project}/payments`
  const account = connection.account ?? `acct_${project}`
  const secretKey = connection.secretKey ?? stripe.key(undefined, account)
  const webhookSecret = newSecret()
  const body = {
    secretKey,
    webhookSecret,
    credentialScopes: connection.scopes ?? allScopes,
    allowedRedirectOrigins: ["https://shop.example.com"]
  }
  const connected = yield* call("PUT", base, { token: session, body })
  assert.strictEqual(connected.status, 200, connected.text)
  const { webhookUrl } = connected.body
  const uid = webhookUrl.split("/").at(-1)
  const shop: Shop = {
    base,
    project,
    webhookUrl,
    uid,
    secretKey,
    webhookSecret,
    call: (method, path, options) => call(method, `${base}${path}`, options),
    send: (payload, { secret = webhookSecret, header } = {}) =>
      Effect.promise(async () => {
        const response = await fetch(`${url}/v1/payments/webhooks/${uid}`, {
          method: "POST",
          headers: {
            "content-type": "application/json",
            "stripe-signature": header ?? stripe.sign(payload, secret)
          },
          body: payload
        })
        await response.arrayBuffer()
        return response.status
      })
  }
  return { ...shop, account: stripe.account(account) }
})
