/**
 * A control plane as a program of its own, killed without warning around every step between a request, Stripe and the
 * store. Locks hold it at the step until it is dead.
 */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import postgres from "postgres"
import { campaign } from "#test/campaigns/campaign.ts"
import { makePlane, planesOnSharedServer } from "#test/faults/planes.ts"
import { until } from "#test/setup/wait.ts"
import { stripeStandIn } from "./stripe/stand-in.ts"
import { allScopes, newSecret } from "./world.ts"

campaign(
  it.live,
  "payment-kills",
  "whatever is killed in between: one product, one customer, one session, one projection",
  { rounds: 0, roundMs: 240_000 },
  () =>
    Effect.gen(function* () {
      const stripe = yield* stripeStandIn
      const { base, store, planes } = yield* planesOnSharedServer
      yield* Effect.promise(async () => {
        const plane = await makePlane(base, store.url, { SVC_STRIPE_URL: stripe.url })
        planes.push(plane)
        await plane.start()
        const sql = postgres(store.url, { max: 2, onnotice: () => {} })
        const project = "/v1/orgs/main/projects"
        const payments = `${project}/shop/payments`
        const { session } = JSON.parse(
          fs.readFileSync(path.join(base, "config", "svc", "credentials.json"), "utf8")
        )
        const post = async (target: string, key: string, body: object) => {
          const response = await fetch(`${plane.url}${payments}${target}`, {
            method: "POST",
            headers: {
              authorization: `Bearer ${session}`,
              "content-type": "application/json",
              "idempotency-key": key
            },
            body: JSON.stringify(body)
          })
          return { status: response.status, body: JSON.parse(await response.text()) }
        }
        /** Runs `request` until `reached`, kills the program there, and starts it again. */
        const killedAt = async (
          request: () => Promise<unknown>,
          reached: () => Promise<boolean> | boolean,
          locked: string | undefined
        ) => {
          let unlock = () => {}
          const lock =
            locked === undefined
              ? undefined
              : new Promise<void>((begun) => {
                  void sql.begin(async (held) => {
                    await held.unsafe(`lock table ${locked} in share row exclusive mode`)
                    begun()
                    await new Promise<void>((resolve) => {
                      unlock = resolve
                    })
                  })
                })
          await lock
          const lost = request().catch(() => undefined)
          await until("the program is at the step", reached)
          await plane.kill("SIGKILL")
          unlock()
          await lost
          stripe.heal()
          // What the dead one held.
          await sql`update idempotency set created_at = now() - interval '3 minutes'`
          await sql`update payment_event set due_at = now()`
          await plane.start()
        }
        const waitsFor = (statement: string) => async () => {
          const [row] = await sql`select count(*)::int as n from pg_stat_activity
            where datname = current_database() and wait_event_type = 'Lock' and query like ${`%${statement}%`} and pid <> pg_backend_pid()`
          return row?.["n"] > 0
        }
        try {
          assert.strictEqual((await plane.call("POST", project, { name: "Shop", slug: "shop" })).status, 201)
          const webhookSecret = newSecret()
          const connected = await plane.call("PUT", payments, {
            secretKey: stripe.key(),
            webhookSecret,
            credentialScopes: allScopes,
            allowedRedirectOrigins: ["https://shop.example.com"]
          })
          assert.strictEqual(connected.status, 200, JSON.stringify(connected.body))
          const { webhookUrl } = connected.body
          const account = stripe.account()
          const made = (kind: string) => account.of(kind).length

          // The intent is stored; Stripe was asked and made nothing.
          const product = () => post("/products", "product", { name: "Pro" })
          stripe.fail({
            kind: "hang",
            times: 9,
            of: ({ method, path }) => method === "POST" && path === "/v1/products"
          })
          await killedAt(product, () => stripe.madeBy("/v1/products") > 0, undefined)
          const first = await product()
          assert.deepStrictEqual([first.status, made("products")], [201, 1], JSON.stringify(first.body))

          // Stripe made it; nothing is stored of it.
          const customer = () => post("/customers", "customer", { email: "buyer@example.com" })
          const stored = waitsFor("insert into payment_object")
          const answered = (path: string) => async () => stripe.madeBy(path) > 0 && (await stored())
          await killedAt(customer, answered("/v1/customers"), "payment_object")
          const second = await customer()
          assert.deepStrictEqual([second.status, made("customers")], [201, 1], JSON.stringify(second.body))

          // The same, and the one who is first to see it is the comparison.
          const price = await post("/prices", "price", {
            productId: first.body.id,
            unitAmount: 5,
            currency: "usd"
          })
          assert.strictEqual(price.status, 201)
          const checkout = () =>
            post("/checkout-sessions", "session", {
              mode: "payment",
              lineItems: [{ priceId: price.body.id }],
              successUrl: "https://shop.example.com/"
            })
          await killedAt(checkout, answered("/v1/checkout/sessions"), "payment_object")
          await until("the comparison sees it", async () => {
            await sql`update payment_connection set due_at = now()`
            await sql`select pg_notify('svc_payment_comparisons', '')`
            return (await sql`select 1 from payment_object where type = 'checkout_session'`).length === 1
          })
          const [seen] = await sql`select id from payment_object where type = 'checkout_session'`
          const third = await checkout()
          assert.deepStrictEqual(
            [third.status, third.body.id, made("checkout/sessions")],
            [201, seen?.["id"], 1]
          )

          // The event is stored and answered; nobody has worked on it.
          const subscription = account.subscription({ customer: account.of("customers")[0]?.["id"] })
          const payload = stripe.event("customer.subscription.created", subscription)
          const deliver = async () => {
            const target = `${plane.url}${new URL(webhookUrl).pathname}`
            const headers = { "stripe-signature": stripe.sign(payload, webhookSecret) }
            return (await fetch(target, { method: "POST", headers, body: payload })).status
          }
          let status = 0
          await killedAt(
            async () => {
              status = await deliver()
            },
            async () => status === 200 && (await stored()),
            "payment_object"
          )
          assert.strictEqual(await deliver(), 200)
          const listed = await until("the subscription is there", async () => {
            const { body } = await plane.call("GET", `${payments}/subscriptions`)
            return body.items.length > 0 && body.items
          })
          assert.deepStrictEqual(
            listed.map(({ status, customerId }: { status: string; customerId: string }) => [
              status,
              customerId
            ]),
            [["active", second.body.id]]
          )
          const events = (await plane.call("GET", `${payments}/events`)).body.items
          assert.strictEqual(events.length, 1)
          const counts =
            await sql`select type, count(*)::int as n from payment_object group by type order by type`
          assert.deepStrictEqual(
            counts.map(({ type, n }) => [type, n]),
            ["checkout_session", "customer", "price", "product", "subscription"].map((type) => [type, 1])
          )
          // Nobody wrote a credential down.
          for (const call of stripe.calls) assert.notInclude(plane.log(), call.key)
          assert.notInclude(plane.log(), webhookSecret)
        } finally {
          await sql.end({ timeout: 1 })
        }
      })
    })
)
