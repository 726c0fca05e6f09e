/** Products, prices, customers, checkout, the portal and subscriptions, through the API and at Stripe. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { usualRights } from "./stripe/stand-in.ts"
import { newShop, paymentsWorld, type Shop, Stripe } from "./world.ts"

const keyed = (key: string, body: unknown) => ({ body, headers: { "idempotency-key": key } })
const catalogue = Effect.fnUntraced(function* (shop: Shop) {
  const product = (yield* shop.call("POST", "/products", { body: { name: "Pro" } })).body
  const price = (yield* shop.call("POST", "/prices", {
    body: { productId: product.id, unitAmount: 1_500, currency: "usd", interval: "month" }
  })).body
  const customer = (yield* shop.call("POST", "/customers", { body: { email: "buyer@example.com" } })).body
  return { product, price, customer }
})
const checkout = (priceId: string) => ({
  mode: "subscription",
  lineItems: [{ priceId, quantity: 2 }],
  successUrl: "https://shop.example.com/done?session={CHECKOUT_SESSION_ID}",
  cancelUrl: "https://shop.example.com"
})

layer(paymentsWorld(), { excludeTestServices: true })("customer payments", (it) => {
  it.effect("products are created, read, changed, archived and listed in pages", () =>
    Effect.gen(function* () {
      const shop = yield* newShop()
      const made = yield* shop.call("POST", "/products", {
        body: { name: "Pro", description: "For teams", metadata: { plan: "pro", tier: "2" } }
      })
      assert.strictEqual(made.status, 201, made.text)
      const { id } = made.body
      assert.deepInclude(made.body, {
        name: "Pro",
        description: "For teams",
        active: true,
        metadata: { plan: "pro", tier: "2" }
      })
      const changed = yield* shop.call("PATCH", `/products/${id}`, {
        body: { name: "Pro+", description: null, metadata: { plan: "plus" }, active: false }
      })
      assert.strictEqual(changed.status, 200, changed.text)
      assert.deepInclude(changed.body, {
        id,
        name: "Pro+",
        description: null,
        active: false,
        metadata: { plan: "plus" }
      })
      assert.deepStrictEqual((yield* shop.call("GET", `/products/${id}`)).body, changed.body)
      for (const name of ["B", "C", "D"]) yield* shop.call("POST", "/products", { body: { name } })
      const first = (yield* shop.call("GET", "/products?limit=3")).body
      const second = (yield* shop.call("GET", `/products?limit=3&cursor=${first.nextCursor}`)).body
      assert.deepStrictEqual([first.items.length, second.items.length, second.nextCursor], [3, 1, null])
      const names = [...first.items, ...second.items].map(({ name }) => name)
      assert.sameMembers(names, ["Pro+", "B", "C", "D"])
      const { sql } = yield* Plane
      const audited = yield* sql(
        `select operation, outcome from audit_log where resource = '${id}' order by id`
      )
      assert.deepStrictEqual(audited, [
        { operation: "customerPayments.createProduct", outcome: 201 },
        { operation: "customerPayments.updateProduct", outcome: 200 }
      ])
      // At Stripe it says which request made it; here nobody sees that.
      const [row] = shop.account.of("products")
      assert.deepStrictEqual(row?.["metadata"], { plan: "plus", svc_request: id })
    })
  )

  it.effect("a customer pays at a page, for prices of this shop, and comes back to it", () =>
    Effect.gen(function* () {
      const stripe = yield* Stripe
      const shop = yield* newShop()
      const { product, price, customer } = yield* catalogue(shop)
      assert.deepInclude(price, {
        productId: product.id,
        unitAmount: 1_500,
        currency: "usd",
        interval: "month",
        active: true
      })
      const archived = yield* shop.call("PATCH", `/prices/${price.id}`, { body: { active: false } })
      assert.deepStrictEqual([archived.status, archived.body.active], [200, false])
      const renamed = yield* shop.call("PATCH", `/customers/${customer.id}`, {
        body: { name: "Ann", email: null }
      })
      assert.deepInclude(renamed.body, { email: null, name: "Ann" })

      const body = { ...checkout(price.id), customerId: customer.id }
      const session = yield* shop.call("POST", "/checkout-sessions", { body })
      assert.strictEqual(session.status, 201, session.text)
      assert.deepInclude(session.body, { mode: "subscription", status: "open", customerId: customer.id })
      assert.match(session.body.url, /^https:\/\/checkout\.stripe\.com\//)
      assert.isAbove(Date.parse(session.body.expiresAt), Date.now())
      const [row] = shop.account.of("checkout/sessions")
      assert.deepInclude(row, {
        success_url: body.successUrl,
        cancel_url: body.cancelUrl,
        line_items: [{ price: shop.account.of("prices")[0]?.["id"], quantity: 2 }],
        customer: shop.account.of("customers")[0]?.["id"]
      })
      Object.assign(row ?? {}, { status: "complete", payment_status: "paid", url: null })
      assert.strictEqual(yield* shop.send(stripe.event("checkout.session.completed", row ?? {})), 200)
      const paid = yield* eventually(
        "it is paid",
        shop.call("GET", `/checkout-sessions/${session.body.id}`),
        ({ body: { status } }) => status === "complete"
      )
      assert.deepInclude(paid.body, { paymentStatus: "paid", url: null })

      const portal = yield* shop.call("POST", "/billing-portal-sessions", {
        body: { customerId: customer.id, returnUrl: "https://shop.example.com/account" }
      })
      assert.deepStrictEqual(
        [portal.status, portal.body.url],
        [201, "https://billing.stripe.com/p/session/1"],
        portal.text
      )
    })
  )

  it.effect("subscriptions end with their period, go on, and are canceled", () =>
    Effect.gen(function* () {
      const stripe = yield* Stripe
      const shop = yield* newShop()
      const row = shop.account.subscription()
      assert.strictEqual(yield* shop.send(stripe.event("customer.subscription.created", row)), 200)
      const listed = yield* eventually(
        "it is there",
        shop.call("GET", "/subscriptions"),
        ({ body }) => body.items.length === 1
      )
      const one = `/subscriptions/${listed.body.items[0].id}`
      for (const cancelAtPeriodEnd of [true, false]) {
        const changed = yield* shop.call("PATCH", one, { body: { cancelAtPeriodEnd } })
        assert.deepStrictEqual([changed.status, changed.body.cancelAtPeriodEnd], [200, cancelAtPeriodEnd])
      }
      for (const _ of [1, 2]) {
        const canceled = yield* shop.call("DELETE", one)
        assert.deepStrictEqual([canceled.status, canceled.body.status], [200, "canceled"], canceled.text)
      }
      assert.strictEqual((yield* shop.call("GET", one)).body.status, "canceled")
    })
  )

  it.effect("one key makes one thing, whoever comes with it, and belongs to one request", () =>
    Effect.gen(function* () {
      const { session } = yield* Plane
      const shop = yield* newShop()
      const body = { name: "Once" }
      const first = yield* shop.call("POST", "/products", keyed("once", body))
      const again = yield* shop.call("POST", "/products", keyed("once", body))
      assert.strictEqual(again.text, first.text)
      // Another credential has no kept answer: the request itself is known.
      const other = yield* shop.call("POST", "/products", { ...keyed("once", body), token: session })
      assert.deepStrictEqual([other.status, other.body], [201, first.body])
      const changed = yield* shop.call("POST", "/products", {
        ...keyed("once", { name: "Other" }),
        token: session
      })
      assert.deepStrictEqual([changed.status, changed.body.code], [409, "idempotency_key_reused"])
      assert.strictEqual(shop.account.of("products").length, 1)
    })
  )

  it.effect("whatever Stripe does in between, a request that is tried again makes one thing", () =>
    Effect.gen(function* () {
      const stripe = yield* Stripe
      const faults = [
        { kind: "late", times: 1 },
        { kind: "lost", times: 2 },
        { kind: "cut", times: 2 },
        { kind: 500, times: 2 },
        { kind: 503, times: 2 }
      ] as const
      yield* Effect.forEach(
        faults,
        Effect.fnUntraced(function* (fault) {
          const shop = yield* newShop()
          const of = ({ method, path, key }: { method: string; path: string; key: string }) =>
            method === "POST" && path === "/v1/products" && key === shop.secretKey
          stripe.fail({ ...fault, of })
          const request = shop.call("POST", "/products", keyed(`again-${shop.project}`, { name: "Pro" }))
          const first = yield* request
          if (fault.kind !== "late") {
            assert.deepStrictEqual(
              [first.status, first.body.code],
              [503, "processor_unavailable"],
              fault.kind.toString()
            )
            assert.isAtLeast(Number(first.headers.get("retry-after")), 1)
          }
          const second = yield* request
          assert.strictEqual(second.status, 201, second.text)
          assert.strictEqual(shop.account.of("products").length, 1, fault.kind.toString())
          const { items } = (yield* shop.call("GET", "/products")).body
          assert.deepStrictEqual(
            items.map(({ id }: { id: string }) => id),
            [second.body.id]
          )
        }),
        { concurrency: 2 }
      )
    })
  )

  it.effect("a failure that Stripe keeps for the key, with nothing behind it, is gone around", () =>
    Effect.gen(function* () {
      const stripe = yield* Stripe
      const shop = yield* newShop()
      const of = ({ method, path, key }: { method: string; path: string; key: string }) =>
        method === "POST" && path === "/v1/products" && key === shop.secretKey
      stripe.fail({ kind: "late", of })
      // As if Stripe had rolled back what it made.
      const watch = shop.account.of("products")
      const request = shop.call("POST", "/products", keyed("kept", { name: "Pro" }))
      const made = yield* request
      assert.strictEqual(made.status, 201)
      watch.splice(0)
      stripe.fail({ kind: "late", of })
      stripe.fail({
        kind: 500,
        of: ({ method, path, key }) => method === "GET" && path === "/v1/products" && key === shop.secretKey,
        times: 2
      })
      const unclear = yield* shop.call("POST", "/products", keyed("kept-2", { name: "Pro" }))
      assert.strictEqual(unclear.status, 503)
      watch.splice(0)
      const again = yield* shop.call("POST", "/products", keyed("kept-2", { name: "Pro" }))
      assert.strictEqual(again.status, 201, again.text)
      assert.strictEqual(watch.length, 1)
      assert.strictEqual(watch[0]?.["metadata"].svc_request, again.body.id)
    })
  )

  it.effect(
    "what an earlier request made is found behind newer things, and after its key was forgotten",
    () =>
      Effect.gen(function* () {
        const { sql } = yield* Plane
        const stripe = yield* Stripe
        const shop = yield* newShop({ scopes: ["products:write"] })
        const of = ({ method, path, key }: { method: string; path: string; key: string }) =>
          method === "POST" && path === "/v1/products" && key === shop.secretKey
        const products = shop.account.of("products")
        for (const age of ["0 hours", "25 hours"]) {
          products.splice(0)
          // It is made, and nobody hears of it.
          stripe.fail({ kind: "lost", of, times: 2 })
          const request = keyed(`behind-${age.replace(" ", "-")}`, { name: "Pro" })
          assert.strictEqual((yield* shop.call("POST", "/products", request)).status, 503)
          assert.strictEqual(products.length, 1)
          const kept = shop.account.kept
          for (const [key, one] of kept)
            kept.set(key, { ...one, status: 500, body: '{"error":{"type":"api_error","message":"late"}}' })
          if (age !== "0 hours") kept.clear()
          yield* sql(`update payment_intent set created_at = created_at - interval '${age}'
          where connection_uid = '${shop.uid}' and processor_id is null`)
          for (let i = 0; i < 150; i++) shop.account.add("products", { name: "Newer", active: true })
          const again = yield* shop.call("POST", "/products", request)
          assert.strictEqual(again.status, 201, again.text)
          assert.strictEqual(products.length, 151, age)
          assert.strictEqual(products[0]?.["metadata"].svc_request, again.body.id)
        }
      })
  )

  it.effect("a failure that Stripe keeps for a session of the portal is gone around", () =>
    Effect.gen(function* () {
      const stripe = yield* Stripe
      const shop = yield* newShop()
      const { customer } = yield* catalogue(shop)
      stripe.fail({
        kind: "late",
        of: ({ path, key }) => path === "/v1/billing_portal/sessions" && key === shop.secretKey
      })
      const body = { customerId: customer.id, returnUrl: "https://shop.example.com/account" }
      const made = yield* shop.call("POST", "/billing-portal-sessions", keyed("portal", body))
      assert.strictEqual(made.status, 201, made.text)
    })
  )

  it.effect("what Stripe refuses is 502, with its sentence only about what users gave", () =>
    Effect.gen(function* () {
      const stripe = yield* Stripe
      const shop = yield* newShop()
      const { product } = yield* catalogue(shop)
      const price = { productId: product.id, unitAmount: 1, currency: "xxx" }
      const refused = yield* shop.call("POST", "/prices", { body: price })
      assert.deepStrictEqual([refused.status, refused.body.code], [502, "processor_rejected"])
      assert.match(refused.body.detail, /Invalid currency: xxx/)
      shop.account.of("products").splice(0)
      const missing = yield* shop.call("POST", "/prices", { body: { ...price, currency: "usd" } })
      assert.strictEqual(missing.status, 502)
      assert.notMatch(missing.text, /prod_/)
      assert.match(missing.body.detail, /its parameter product/)
      assert.strictEqual(
        (yield* shop.call("PATCH", `/products/${product.id}`, { body: { name: "x" } })).status,
        404
      )
      stripe.grant(shop.secretKey, { ...usualRights, customers: "read" })
      const right = yield* shop.call("POST", "/customers", { body: {} })
      assert.deepStrictEqual([right.status, right.body.code], [502, "processor_rejected"])
      stripe.fail({
        kind: 429,
        headers: { "retry-after": "17" },
        of: ({ path, key }) => path === "/v1/customers" && key === shop.secretKey
      })
      stripe.grant(shop.secretKey, usualRights)
      const limited = yield* shop.call("POST", "/customers", { body: {} })
      assert.deepStrictEqual([limited.status, limited.headers.get("retry-after")], [503, "17"])
    })
  )

  it.effect("what is outside of the scopes is 403, before Stripe is asked", () =>
    Effect.gen(function* () {
      const stripe = yield* Stripe
      const shop = yield* newShop({ scopes: ["products:read", "customers:write"] })
      const id = crypto.randomUUID()
      const calls = stripe.calls.length
      for (const [method, path, body] of [
        ["POST", "/products", { name: "x" }],
        ["PATCH", `/products/${id}`, { name: "x" }],
        ["GET", "/prices", undefined],
        ["POST", "/prices", { productId: id, unitAmount: 1, currency: "usd" }],
        ["POST", "/checkout-sessions", checkout(id)],
        ["POST", "/billing-portal-sessions", { customerId: id, returnUrl: "https://shop.example.com" }],
        ["GET", "/subscriptions", undefined],
        ["DELETE", `/subscriptions/${id}`, undefined]
      ] as const) {
        const refused = yield* shop.call(method, path, body === undefined ? {} : { body })
        assert.deepStrictEqual(
          [refused.status, refused.body.code],
          [403, "scope_not_allowed"],
          `${method} ${path}`
        )
      }
      assert.isEmpty(
        stripe.calls.slice(calls).filter(({ method, key }) => method === "POST" && key === shop.secretKey)
      )
      assert.strictEqual((yield* shop.call("GET", "/products")).status, 200)
      assert.strictEqual((yield* shop.call("GET", "/customers")).status, 200)
    })
  )

  it.effect("hostile bodies are refused before Stripe is asked", () =>
    Effect.gen(function* () {
      const shop = yield* newShop()
      const { product, price, customer } = yield* catalogue(shop)
      const calls = shop.account.of("checkout/sessions").length
      const metadata = Object.fromEntries(Array.from({ length: 21 }, (_, i) => [`k${i}`, "v"]))
      const amount = (unitAmount: unknown) => ({ productId: product.id, unitAmount, currency: "usd" })
      const urls = [
        "https://shop.example.com.evil.example/",
        "https://shop.example.com@evil.example/",
        "https://user:pw@shop.example.com/",
        "https://shop.example.com:444/",
        "http://shop.example.com/",
        "https://SHOP.example.com/",
        "https://shop。example.com/",
        "https://ѕhop.example.com/",
        "https:\\\\shop.example.com/",
        "https://shop.example.com\\@evil.example/",
        "https:shop.example.com/",
        " https://shop.example.com/",
        "https://shop.example.com\t/",
        "//shop.example.com/",
        "javascript:alert(1)//https://shop.example.com/"
      ]
      const wrong: ReadonlyArray<readonly [string, object, string]> = [
        ["/products", { name: "x", metadata }, "/metadata"],
        ["/products", { name: "x", metadata: { svc_request: "mine" } }, "/metadata"],
        ["/products", { name: "" }, "/name"],
        ["/products", { name: "x\0" }, "/name"],
        ["/products", { name: "x", secret: 1 }, "/secret"],
        ["/prices", amount(1.5), "/unitAmount"],
        ["/prices", amount(-1), "/unitAmount"],
        ["/prices", amount(2 ** 53), "/unitAmount"],
        ["/prices", amount(1e300), "/unitAmount"],
        ["/prices", amount("100"), "/unitAmount"],
        ["/prices", { ...amount(1), currency: "USD" }, "/currency"],
        ["/prices", { ...amount(1), currency: "dollars" }, "/currency"],
        ["/prices", { ...amount(1), productId: customer.id }, "/productId"],
        ["/prices", { ...amount(1), productId: "prod_1" }, "/productId"],
        ["/customers", { email: "nobody" }, "/email"],
        ["/checkout-sessions", { ...checkout(price.id), lineItems: [] }, "/lineItems"],
        ["/checkout-sessions", checkout(product.id), "/lineItems/0/priceId"],
        ["/checkout-sessions", { ...checkout(price.id), customerId: price.id }, "/customerId"],
        ...urls.map(
          (successUrl) =>
            ["/checkout-sessions", { ...checkout(price.id), successUrl }, "/successUrl"] as const
        ),
        ["/checkout-sessions", { ...checkout(price.id), cancelUrl: urls[0] }, "/cancelUrl"],
        ["/billing-portal-sessions", { customerId: customer.id, returnUrl: urls[1] }, "/returnUrl"]
      ]
      for (const [path, body, pointer] of wrong) {
        const refused = yield* shop.call("POST", path, { body })
        const [fault] = refused.body.errors ?? []
        assert.strictEqual(refused.status, 422, `${path} ${JSON.stringify(body)}`)
        assert.isTrue(fault.pointer.startsWith(pointer), `${fault.pointer} ${JSON.stringify(body)}`)
      }
      assert.strictEqual(shop.account.of("checkout/sessions").length, calls)
      // There is nothing smaller than a yen.
      const yen = yield* shop.call("POST", "/prices", { body: { ...amount(500), currency: "jpy" } })
      assert.deepInclude(yen.body, { unitAmount: 500, currency: "jpy" })
    })
  )

  it.effect("ids of another shop name nothing here, wherever they stand", () =>
    Effect.gen(function* () {
      const { tenant, call } = yield* Plane
      const [mine, theirs] = [yield* newShop(), yield* newShop()]
      const own = yield* catalogue(mine)
      const { product, price, customer } = yield* catalogue(theirs)
      const session = (yield* theirs.call("POST", "/checkout-sessions", { body: checkout(price.id) })).body
      for (const [method, path, body] of [
        ["GET", `/products/${product.id}`, undefined],
        ["PATCH", `/products/${product.id}`, { name: "x" }],
        ["PATCH", `/prices/${price.id}`, { active: false }],
        ["GET", `/customers/${customer.id}`, undefined],
        ["PATCH", `/customers/${customer.id}`, {}],
        ["GET", `/checkout-sessions/${session.id}`, undefined],
        ["GET", `/subscriptions/${product.id}`, undefined]
      ] as const) {
        const refused = yield* mine.call(method, path, body === undefined ? {} : { body })
        assert.strictEqual(refused.status, 404, `${method} ${path}`)
      }
      for (const [path, body] of [
        ["/prices", { productId: product.id, unitAmount: 1, currency: "usd" }],
        ["/checkout-sessions", checkout(price.id)],
        ["/checkout-sessions", { ...checkout(own.price.id), customerId: customer.id }],
        ["/billing-portal-sessions", { customerId: customer.id, returnUrl: "https://shop.example.com" }]
      ] as const) {
        assert.strictEqual((yield* mine.call("POST", path, { body })).status, 422, path)
      }
      const stranger = yield* tenant()
      const foreign = yield* call("GET", `${mine.base}/products`, { token: stranger.owner })
      assert.strictEqual(foreign.status, 404)
    })
  )

  it.effect("without active billing nothing is done, but for ending the connection", () =>
    Effect.gen(function* () {
      const { sql, session } = yield* Plane
      const shop = yield* newShop()
      const billing = (status: string) =>
        sql(`update organization set billing_status = '${status}' where slug = 'main'`)
      yield* billing("past_due")
      yield* Effect.gen(function* () {
        for (const [method, path, body] of [
          ["GET", "", undefined],
          ["GET", "/products", undefined],
          ["POST", "/products", { name: "x" }],
          ["GET", "/events", undefined]
        ] as const) {
          const refused = yield* shop.call(method, path, body === undefined ? {} : { body })
          assert.deepStrictEqual([refused.status, refused.body.code], [402, "billing_inactive"], path)
        }
        assert.strictEqual((yield* shop.call("DELETE", "", { token: session })).status, 200)
      }).pipe(Effect.ensuring(billing("active")))
    })
  )
})
