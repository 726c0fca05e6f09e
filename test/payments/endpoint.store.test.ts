/** The webhook endpoint that the platform keeps at Stripe, and manifests. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { usualRights } from "./stripe/stand-in.ts"
import { allScopes, newSecret, newShop, paymentsWorld, type Shop, Stripe } from "./world.ts"

const conditionOf = Effect.fnUntraced(function* (shop: Shop) {
  const { call } = yield* Plane
  const { body } = yield* call("GET", `/v1/orgs/main/resources/${shop.uid}`)
  return body.conditions.find(({ type }: { type: string }) => type === "Ready")
})
const reconcile = Effect.fnUntraced(function* (shop: Shop) {
  const { call } = yield* Plane
  const asked = yield* call("POST", `/v1/orgs/main/resources/${shop.uid}/retry`)
  assert.strictEqual(asked.status, 202, asked.text)
})

layer(paymentsWorld({ publicUrl: "https://svc.example.com" }), { excludeTestServices: true })(
  "the webhook endpoint at Stripe",
  (it) => {
    it.effect("is made with the right events where the key may, mended, and taken away at the end", () =>
      Effect.gen(function* () {
        const { call, session } = yield* Plane
        const stripe = yield* Stripe
        const account = "acct_endpoint"
        const secretKey = stripe.key({ ...usualRights, webhook_endpoints: "write" }, account)
        const shop = yield* newShop({ secretKey, account })
        const endpoints = stripe.account(account).of("webhook_endpoints")
        const look = Effect.sync(() => endpoints[0])
        const made = yield* eventually("it is there", look, (one) => one !== undefined)
        assert.deepInclude(made, {
          url: shop.webhookUrl,
          api_version: "2026-10-28.endive",
          status: "enabled"
        })
        assert.include(made?.["enabled_events"], "customer.subscription.updated")
        yield* eventually("the connection is ready", conditionOf(shop), (one) => one?.status === "true")

        Object.assign(made ?? {}, { enabled_events: ["product.updated"], status: "disabled" })
        yield* reconcile(shop)
        yield* eventually(
          "it is mended",
          look,
          (one) => one?.["status"] === "enabled" && one["enabled_events"].length > 5
        )
        const before = made?.["id"]
        endpoints.splice(0)
        yield* reconcile(shop)
        const again = yield* eventually("it is made anew", look, (one) => one !== undefined)
        assert.notStrictEqual(again?.["id"], before)
        assert.strictEqual(endpoints.length, 1)

        const gone = yield* call("DELETE", shop.base, { token: session })
        assert.strictEqual(gone.status, 200, gone.text)
        // A reconcile that was under way may have made it once more, and then takes it away itself.
        yield* eventually(
          "there is none",
          Effect.sync(() => endpoints.length),
          (many) => many === 0
        )
      })
    )

    it.effect("is left where the key may not take it away any more: its environment's end goes on", () =>
      Effect.gen(function* () {
        const { call, session, sql } = yield* Plane
        const stripe = yield* Stripe
        const account = "acct_left"
        const secretKey = stripe.key({ ...usualRights, webhook_endpoints: "write" }, account)
        const shop = yield* newShop({ secretKey, account })
        const kept = sql(
          `select 1 from payment_connection where uid = '${shop.uid}' and endpoint_id is not null`
        )
        yield* eventually("it is there", kept, (rows) => rows.length === 1)
        stripe.grant(secretKey, { ...usualRights, webhook_endpoints: "read" })
        const ended = yield* call("DELETE", `/v1/orgs/main/projects/${shop.project}`, { token: session })
        assert.isBelow(ended.status, 300, ended.text)
        yield* eventually("nothing is kept", kept, (rows) => rows.length === 0)
      })
    )

    it.effect("is the owner's to make where the key may not: the address is told", () =>
      Effect.gen(function* () {
        const shop = yield* newShop()
        const condition = yield* eventually(
          "it was looked at",
          conditionOf(shop),
          (one) => one?.status === "true"
        )
        assert.strictEqual(condition.reason, "WebhookAddress")
        assert.include(condition.message, shop.webhookUrl)
        assert.isEmpty(shop.account.of("webhook_endpoints"))
      })
    )

    it.effect("is the owner's to make where the key may see endpoints and not make them", () =>
      Effect.gen(function* () {
        const { sql } = yield* Plane
        const stripe = yield* Stripe
        const account = "acct_readonly"
        const secretKey = stripe.key({ ...usualRights, webhook_endpoints: "read" }, account)
        const shop = yield* newShop({ secretKey, account })
        const condition = conditionOf(shop)
        const told = yield* eventually("it is ready", condition, (one) => one?.status === "true")
        assert.strictEqual(told.reason, "WebhookAddress")
        assert.include(told.message, shop.webhookUrl)

        // The key was given the right, and is tried again after a day.
        stripe.grant(secretKey, { ...usualRights, webhook_endpoints: "write" })
        yield* sql(
          `update payment_connection set endpoint_refused_at = now() - interval '25 hours' where uid = '${shop.uid}'`
        )
        yield* reconcile(shop)
        yield* eventually("the note is gone", condition, (one) => one?.reason !== "WebhookAddress")
        assert.lengthOf(stripe.account(account).of("webhook_endpoints"), 1)
      })
    )

    it.effect("a manifest connects, masks what it exports, and is refused keys of full access", () =>
      Effect.gen(function* () {
        const { call, session, sql } = yield* Plane
        const stripe = yield* Stripe
        const account = "acct_manifest"
        const [secretKey, webhookSecret] = [stripe.key(undefined, account), newSecret()]
        const manifest = (payments: object) => ({
          version: 1,
          organization: "main",
          projects: [
            {
              slug: "declared",
              name: "Declared",
              runtimeClass: "scale-to-zero",
              customerPayments: [
                {
                  secretKey,
                  webhookSecret,
                  credentialScopes: allScopes,
                  allowedRedirectOrigins: ["https://shop.example.com"],
                  ...payments
                }
              ]
            }
          ]
        })
        const full = `sk_live_${"x".repeat(24)}`
        const refused = yield* call("POST", "/v1/orgs/main/manifest/plan", {
          body: manifest({ secretKey: full })
        })
        assert.deepStrictEqual(
          [refused.status, refused.body.errors?.[0].pointer],
          [422, "/projects/0/customerPayments/0/secretKey"]
        )
        assert.notInclude(refused.text, full)
        const planned = yield* call("POST", "/v1/orgs/main/manifest/plan", { body: manifest({}) })
        assert.strictEqual(planned.status, 200, planned.text)
        for (const secret of [secretKey, webhookSecret]) assert.notInclude(planned.text, secret)
        const applied = yield* call("POST", "/v1/orgs/main/manifest/apply", {
          token: session,
          body: { planId: planned.body.planId }
        })
        assert.strictEqual(applied.status, 202, applied.text)
        const base = "/v1/orgs/main/projects/declared/payments"
        yield* eventually("it is ready", call("GET", base), ({ body }) => body.status === "ready")
        const made = yield* call("POST", `${base}/products`, { body: { name: "One" } })
        assert.strictEqual(made.status, 201, made.text)

        const exported = yield* call("GET", "/v1/orgs/main/manifest")
        const { customerPayments } = exported.body.projects.find(
          ({ slug }: { slug: string }) => slug === "declared"
        )
        assert.deepStrictEqual(customerPayments, [
          {
            environment: "production",
            secretKey: "****",
            webhookSecret: "****",
            credentialScopes: allScopes,
            allowedRedirectOrigins: ["https://shop.example.com"]
          }
        ])
        const again = yield* call("POST", "/v1/orgs/main/manifest/plan", { body: exported.body })
        assert.deepStrictEqual([again.status, again.body.summary.update], [200, 0], again.text)

        // A key that is too wide gets as far as the first look.
        const wide = stripe.key({ ...usualRights, balance: "read" }, account)
        const change = yield* call("POST", "/v1/orgs/main/manifest/apply", {
          token: session,
          body: { manifest: manifest({ secretKey: wide }) }
        })
        assert.strictEqual(change.status, 202, change.text)
        const disabled = yield* eventually("it is disabled", call("GET", base), ({ body }) =>
          /balance/.test(body.statusDetail ?? "")
        )
        assert.strictEqual(disabled.body.status, "disabled")
        assert.strictEqual((yield* call("POST", `${base}/products`, { body: { name: "Two" } })).status, 409)

        // Without the section and with prune it goes, with what is stored of it.
        const { projects } = exported.body
        const without = projects.map((project: { slug: string }) =>
          project.slug === "declared" ? { ...project, customerPayments: [] } : project
        )
        const body = { manifest: { ...exported.body, projects: without }, prune: true }
        const pruned = yield* call("POST", "/v1/orgs/main/manifest/apply", { token: session, body })
        assert.strictEqual(pruned.status, 202, pruned.text)
        const left = sql(`select 1 from payment_object o join resource r on r.uid = o.connection_uid
          join resource p on p.uid = r.project_id where p.name = 'declared'`)
        yield* eventually("nothing is left", left, (rows) => rows.length === 0)
      })
    )
  }
)
