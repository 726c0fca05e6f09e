/** Connecting an account, and what is refused. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { Plane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { usualRights } from "./stripe/stand-in.ts"
import { allScopes, newSecret, newShop, paymentsWorld, Stripe } from "./world.ts"

layer(paymentsWorld(), { excludeTestServices: true })("connecting an account", (it) => {
  it.effect("it is not configured, is connected by an owner, and shows no credential", () =>
    Effect.gen(function* () {
      const { call, session, url } = yield* Plane
      const stripe = yield* Stripe
      yield* call("POST", "/v1/orgs/main/projects", { body: { name: "First", slug: "first" } })
      const base = "/v1/orgs/main/projects/first/payments"
      const before = yield* call("GET", base)
      assert.strictEqual(before.status, 200, before.text)
      assert.deepInclude(before.body, { status: "not_configured", credentialHint: null, webhookUrl: null })
      const products = yield* call("GET", `${base}/products`)
      assert.deepStrictEqual([products.status, products.body.code], [409, "payments_not_configured"])

      const secretKey = stripe.key()
      const body = {
        secretKey,
        webhookSecret: newSecret(),
        credentialScopes: allScopes,
        allowedRedirectOrigins: ["https://shop.example.com"]
      }
      assert.strictEqual((yield* call("PUT", base, { body })).status, 403)
      const connected = yield* call("PUT", base, { token: session, body })
      assert.strictEqual(connected.status, 200, connected.text)
      assert.deepInclude(connected.body, {
        status: "ready",
        statusDetail: null,
        credentialConfigured: true,
        credentialHint: secretKey.slice(-4),
        webhookSecretConfigured: true,
        credentialScopes: allScopes,
        allowedRedirectOrigins: ["https://shop.example.com"]
      })
      assert.isTrue(connected.body.webhookUrl.startsWith(`${url}/v1/payments/webhooks/`))
      assert.notInclude(connected.text, secretKey)
      const after = yield* call("GET", base)
      assert.deepStrictEqual(after.body.webhookUrl, connected.body.webhookUrl)
      // Other environments have their own.
      const preview = yield* call("GET", `${base}?environment=preview`)
      assert.strictEqual(preview.body.status, "not_configured")
    })
  )

  it.effect(
    "keys of full access, unknown ones, too wide and too narrow ones are refused, and never shown",
    () =>
      Effect.gen(function* () {
        const { call, session } = yield* Plane
        const stripe = yield* Stripe
        yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Keys", slug: "keys" } })
        const base = "/v1/orgs/main/projects/keys/payments"
        const { subscriptions: _, ...narrow } = usualRights
        const cases: ReadonlyArray<readonly [string, string]> = [
          ["sk_test_0123456789abcdef", "invalid"],
          ["sk_live_0123456789abcdef", "invalid"],
          ["pk_test_0123456789abcdef", "invalid"],
          ["rk_test_0123456789abcdef", "credential_revoked"],
          [stripe.key({ ...usualRights, balance: "read" }), "credential_too_wide"],
          [stripe.key(narrow), "credential_right_missing"]
        ]
        for (const [secretKey, code] of cases) {
          const refused = yield* call("PUT", base, {
            token: session,
            body: {
              secretKey,
              webhookSecret: newSecret(),
              credentialScopes: allScopes,
              allowedRedirectOrigins: []
            }
          })
          assert.deepStrictEqual(
            [refused.status, refused.body.code, refused.body.errors[0].pointer],
            [422, code, "/secretKey"]
          )
          assert.notInclude(refused.text, secretKey)
        }
        // What the scopes do not name, the key need not have.
        const enough = yield* call("PUT", base, {
          token: session,
          body: {
            secretKey: stripe.key({ products: "read" }),
            webhookSecret: newSecret(),
            credentialScopes: ["products:read"],
            allowedRedirectOrigins: []
          }
        })
        assert.strictEqual(enough.status, 200, enough.text)
      })
  )

  it.effect("redirect origins are https, exact and in ASCII", () =>
    Effect.gen(function* () {
      const { session } = yield* Plane
      const shop = yield* newShop()
      const wrong = [
        "http://shop.example.com",
        "https://shop.example.com/",
        "https://shop.example.com/path",
        "https://user@shop.example.com",
        "https://SHOP.example.com",
        "https://shop.example.com:443",
        "https://*.example.com",
        "https://shöp.example.com",
        "https://shop.example.com#",
        "https://shop.example.com\\@evil.example",
        "//shop.example.com",
        "javascript:alert(1)"
      ]
      for (const origin of wrong) {
        const body = { allowedRedirectOrigins: [origin] }
        const refused = yield* shop.call("PATCH", "", { token: session, body })
        assert.deepStrictEqual(
          [refused.status, refused.body.errors?.[0].pointer],
          [422, "/allowedRedirectOrigins/0"],
          origin
        )
      }
      const body = { allowedRedirectOrigins: ["https://a.example.com:8443", "https://b.example.com"] }
      const changed = yield* shop.call("PATCH", "", { token: session, body })
      assert.deepStrictEqual(
        [changed.status, changed.body.allowedRedirectOrigins],
        [200, body.allowedRedirectOrigins]
      )
    })
  )

  it.effect("a key of another account is refused as soon as something of the first is known", () =>
    Effect.gen(function* () {
      const { session } = yield* Plane
      const stripe = yield* Stripe
      const shop = yield* newShop()
      assert.strictEqual((yield* shop.call("POST", "/products", { body: { name: "One" } })).status, 201)
      const body = {
        secretKey: stripe.key(undefined, "acct_somebody_else"),
        webhookSecret: newSecret(),
        credentialScopes: allScopes,
        allowedRedirectOrigins: []
      }
      const refused = yield* shop.call("PUT", "", { token: session, body })
      assert.deepStrictEqual([refused.status, refused.body.code], [409, "other_account"])
    })
  )

  it.effect("a key that sees one thing only of what is known, and misses it, is of another account", () =>
    Effect.gen(function* () {
      const { session } = yield* Plane
      const stripe = yield* Stripe
      const shop = yield* newShop()
      for (const [path, body] of [
        ["/products", { name: "One" }],
        ["/customers", { email: "buyer@example.com" }]
      ] as const)
        assert.strictEqual((yield* shop.call("POST", path, { body })).status, 201)
      const body = {
        secretKey: stripe.key({ products: "read" }, "acct_with_products_only"),
        webhookSecret: newSecret(),
        credentialScopes: ["products:read"],
        allowedRedirectOrigins: []
      }
      const refused = yield* shop.call("PUT", "", { token: session, body })
      assert.deepStrictEqual([refused.status, refused.body.code], [409, "other_account"])
    })
  )

  it.effect("what is deleted at Stripe does not make the key one of another account", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const stripe = yield* Stripe
      const shop = yield* newShop()
      const made = yield* shop.call("POST", "/products", { body: { name: "One" } })
      assert.strictEqual(made.status, 201, made.text)
      shop.account.of("products").splice(0)
      const looks = Effect.sync(
        () => stripe.calls.filter(({ key, path }) => key === shop.secretKey && path === "/v1/balance").length
      )
      // The look of each reconcile has been stored when the next one begins.
      for (const _ of [1, 2]) {
        const before = yield* looks
        assert.strictEqual((yield* call("POST", `/v1/orgs/main/resources/${shop.uid}/retry`)).status, 202)
        yield* eventually("it is looked at", looks, (count) => count > before)
      }
      assert.strictEqual((yield* shop.call("GET", "")).body.status, "ready")
    })
  )

  it.effect("a key that is revoked while it is used disables the connection, and a new one enables it", () =>
    Effect.gen(function* () {
      const { session } = yield* Plane
      const stripe = yield* Stripe
      const account = "acct_revoked"
      const shop = yield* newShop({ account })
      stripe.revoke(shop.secretKey)
      const refused = yield* shop.call("POST", "/products", { body: { name: "One" } })
      assert.deepStrictEqual([refused.status, refused.body.code], [409, "payments_disabled"])
      const config = yield* shop.call("GET", "")
      assert.strictEqual(config.body.status, "disabled")
      assert.match(config.body.statusDetail, /new restricted key/)
      const calls = stripe.calls.length
      assert.strictEqual((yield* shop.call("POST", "/products", { body: { name: "One" } })).status, 409)
      assert.isEmpty(stripe.calls.slice(calls).filter(({ path }) => path === "/v1/products"))
      const body = {
        secretKey: stripe.key(undefined, account),
        webhookSecret: newSecret(),
        credentialScopes: allScopes,
        allowedRedirectOrigins: []
      }
      const connected = yield* shop.call("PUT", "", { token: session, body })
      assert.deepStrictEqual([connected.status, connected.body.status], [200, "ready"], connected.text)
      assert.strictEqual((yield* shop.call("POST", "/products", { body: { name: "One" } })).status, 201)
    })
  )

  it.effect("disconnecting leaves nothing here, and webhooks get 404", () =>
    Effect.gen(function* () {
      const { session, sql } = yield* Plane
      const stripe = yield* Stripe
      const shop = yield* newShop()
      const made = yield* shop.call("POST", "/products", { body: { name: "One" } })
      assert.strictEqual(made.status, 201, made.text)
      const event = stripe.event("product.updated", shop.account.of("products")[0] ?? {})
      assert.strictEqual(yield* shop.send(event), 200)
      assert.strictEqual((yield* shop.call("DELETE", "")).status, 403)
      const gone = yield* shop.call("DELETE", "", { token: session })
      assert.deepStrictEqual([gone.status, gone.body], [200, { ok: true }], gone.text)
      const tables = [
        ["payment_object", "connection_uid"],
        ["payment_event", "connection_uid"],
        ["payment_intent", "connection_uid"],
        ["payment_connection", "uid"],
        ["secret", "uid"]
      ]
      for (const [table, column] of tables) {
        const left = yield* sql(`select 1 from ${table} where ${column} = '${shop.uid}'`)
        assert.isEmpty(left, table)
      }
      assert.strictEqual(yield* shop.send(stripe.event("product.updated", {})), 404)
      assert.strictEqual((yield* shop.call("GET", "")).body.status, "not_configured")
      assert.strictEqual((yield* shop.call("DELETE", "", { token: session })).status, 404)
      const resource = sql(`select 1 from resource where uid = '${shop.uid}' and deleted_at is null`)
      yield* eventually("the engine sees that it is gone", resource, (rows) => rows.length === 0)
      // The products at Stripe stay the owner's.
      assert.strictEqual(shop.account.of("products").length, 1)
    })
  )

  it.effect("disconnecting while Stripe is asked leaves nothing behind of what is answered later", () =>
    Effect.gen(function* () {
      const { session, sql } = yield* Plane
      const stripe = yield* Stripe
      const shop = yield* newShop()
      const row = shop.account.subscription()
      let answer = () => {}
      const until = new Promise<void>((resolve) => {
        answer = resolve
      })
      const asked = (method: string, path: string) => (call: { method: string; path: string; key: string }) =>
        call.method === method && call.path === path && call.key === shop.secretKey
      const [look, make] = [asked("GET", `/v1/subscriptions/${row["id"]}`), asked("POST", "/v1/products")]
      stripe.fail({ kind: "slow", until, of: look })
      stripe.fail({ kind: "slow", until, of: make })
      assert.strictEqual(yield* shop.send(stripe.event("customer.subscription.updated", row)), 200)
      const creating = yield* Effect.forkScoped(shop.call("POST", "/products", { body: { name: "Late" } }))
      yield* eventually(
        "both are asked",
        Effect.sync(() => stripe.calls.some(look) && stripe.calls.some(make))
      )
      assert.strictEqual((yield* shop.call("DELETE", "", { token: session })).status, 200)
      answer()
      const made = yield* Fiber.join(creating)
      assert.deepStrictEqual([made.status, made.body.code], [409, "payments_not_configured"])
      const jobs = sql(`select 1 from resource where uid = '${shop.uid}' and deleted_at is null`)
      yield* eventually("the engine sees that it is gone", jobs, (rows) => rows.length === 0)
      for (const table of ["payment_object", "payment_event", "payment_intent"]) {
        assert.isEmpty(yield* sql(`select 1 from ${table} where connection_uid = '${shop.uid}'`), table)
      }
    })
  )
})
