/** Apps, with the token of their environment. */
import * as http from "node:http"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { newShop, paymentsWorld, type Shop, Stripe } from "./world.ts"

const runtime = "/v1/runtime/payments"

const tokenOf = Effect.fnUntraced(function* (shop: Shop, environment = "production") {
  const { call } = yield* Plane
  const project = shop.base.replace(/\/payments$/, "")
  const environments = (yield* call("GET", `${project}/environments`)).body
  const { id } = environments.find(({ slug }: { slug: string }) => slug === environment)
  const rotated = yield* call("POST", `${project}/environments/${id}/app-service-token/rotate`)
  assert.strictEqual(rotated.status, 200, rotated.text)
  return String(rotated.body.appServiceToken)
})
const send = Effect.fnUntraced(function* (
  token: string | null,
  method: string,
  path: string,
  body?: unknown,
  key?: string
) {
  const { url } = yield* Plane
  return yield* Effect.promise(async () => {
    const response = await fetch(`${url}${runtime}${path}`, {
      method,
      headers: {
        ...(token === null ? {} : { authorization: `Bearer ${token}` }),
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...(key === undefined ? {} : { "idempotency-key": key })
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) })
    })
    return { status: response.status, body: JSON.parse(await response.text()) }
  })
})

/** The path as it is: fetch resolves `..` before it sends anything. */
const sendRaw = Effect.fnUntraced(function* (token: string, path: string) {
  const { url } = yield* Plane
  const { hostname, port } = new URL(url)
  return yield* Effect.promise(
    () =>
      new Promise<number | undefined>((resolve, reject) => {
        const headers = { authorization: `Bearer ${token}` }
        http
          .get({ hostname, port, path: `${runtime}${path}`, headers, agent: false }, (response) => {
            response.resume()
            resolve(response.statusCode)
          })
          .on("error", reject)
      })
  )
})

layer(paymentsWorld(), { excludeTestServices: true })("apps", (it) => {
  it.effect("create checkout sessions for their users, within the connection's scopes", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const shop = yield* newShop({
        scopes: ["products:read", "prices:read", "checkout_sessions:write", "customers:write"]
      })
      const product = shop.account.add("products", { name: "Pro", active: true })
      shop.account.add("prices", { product: product["id"], unit_amount: 500, currency: "usd", active: true })
      const token = yield* tokenOf(shop)
      const compare =
        sql(`with due as (update payment_connection set due_at = now() where uid = '${shop.uid}')
        select pg_notify('svc_payment_comparisons', '')`)
      const prices = yield* eventually(
        "the price is seen",
        Effect.andThen(compare, send(token, "GET", "/prices")),
        ({ body }) => body.items.length === 1
      )
      assert.strictEqual(prices.status, 200)
      const order = {
        mode: "payment",
        lineItems: [{ priceId: prices.body.items[0].id }],
        successUrl: "https://shop.example.com/done"
      }
      const made = yield* send(token, "POST", "/checkout-sessions", order, "order-1")
      assert.strictEqual(made.status, 201, JSON.stringify(made.body))
      assert.deepStrictEqual(
        (yield* send(token, "POST", "/checkout-sessions", order, "order-1")).body,
        made.body
      )
      assert.deepStrictEqual((yield* send(token, "GET", `/checkout-sessions/${made.body.id}`)).status, 200)
      assert.strictEqual(shop.account.of("checkout/sessions").length, 1)
      assert.strictEqual((yield* send(token, "GET", "")).body.status, "ready")

      const refused = yield* send(token, "POST", "/products", { name: "x" })
      assert.deepStrictEqual([refused.status, refused.body.code], [403, "scope_not_allowed"])
      const owners = yield* send(token, "DELETE", "")
      assert.deepStrictEqual([owners.status, owners.body.code], [403, "forbidden"])
      const audited = (outcome: number, operation: string) =>
        eventually(
          `${operation} is audited`,
          sql(`select distinct credential, principal like 'app:%' as app from audit_log
            where operation = 'customerPayments.${operation}' and outcome = ${outcome} and principal like 'app:%'`),
          (rows) => rows.length === 1 && rows[0]?.["credential"] === "app"
        )
      yield* audited(403, "disconnect")
      yield* audited(201, "createCheckoutSession")
    })
  )

  it.effect("reach their own environment and nothing else", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const [mine, other] = [yield* newShop(), yield* newShop()]
      const token = yield* tokenOf(mine)
      const product = (yield* other.call("POST", "/products", { body: { name: "Theirs" } })).body
      assert.strictEqual((yield* send(token, "GET", `/products/${product.id}`)).status, 404)
      assert.strictEqual((yield* send(token, "GET", "/products?environment=preview")).status, 422)
      assert.strictEqual(
        (yield* send(yield* tokenOf(mine, "preview"), "GET", "/products")).body.code,
        "payments_not_configured"
      )
      for (const path of [
        `/../projects/${other.project}/payments/products`,
        "/%2e%2e/database",
        "/../database"
      ]) {
        assert.strictEqual(yield* sendRaw(token, path), 404, path)
      }
      assert.strictEqual((yield* send(null, "GET", "/products")).status, 401)
      assert.strictEqual((yield* send(`svcapp_${"0".repeat(40)}`, "GET", "/products")).status, 401)
      const { apiKey } = yield* Plane
      assert.strictEqual((yield* send(apiKey, "GET", "/products")).status, 401)
      // Elsewhere the token is none.
      assert.strictEqual((yield* call("GET", `${mine.base}/products`, { token })).status, 401)
      // The second rotation ends what the first one replaced.
      yield* tokenOf(mine)
      assert.strictEqual((yield* send(token, "GET", "/products")).status, 200)
      yield* tokenOf(mine)
      assert.strictEqual((yield* send(token, "GET", "/products")).status, 401)
    })
  )

  it.effect("of two environments that come with the same key are two callers, also at one account", () =>
    Effect.gen(function* () {
      const stripe = yield* Stripe
      const account = "acct_shared_by_two"
      const shops = [yield* newShop({ account }), yield* newShop({ account })]
      const body = { email: "buyer@example.com" }
      for (const shop of shops) {
        const made = yield* send(yield* tokenOf(shop), "POST", "/customers", body, "the-same")
        assert.strictEqual(made.status, 201, JSON.stringify(made.body))
      }
      const keys = stripe.calls
        .filter(({ method, path }) => method === "POST" && path === "/v1/customers")
        .map(({ idempotencyKey }) => idempotencyKey ?? "")
      assert.strictEqual(new Set(keys).size, 2)
      for (const key of keys) assert.match(key, /^svc_[A-Za-z0-9_-]{43}$/)
      assert.strictEqual(stripe.account(account).of("customers").length, 2)
    })
  )
})
