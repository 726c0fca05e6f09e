/** Webhooks of Stripe, and the projection that is right whatever becomes of them. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import type { Row } from "./stripe/stand-in.ts"
import { allScopes, newSecret, newShop, paymentsWorld, type Shop, Stripe } from "./world.ts"

// biome-ignore lint/suspicious/noExplicitAny: tests look at what came, whatever it is.
type Event = any

const eventsOf = (shop: Shop) =>
  Effect.map(shop.call("GET", "/events?limit=100"), ({ body }): ReadonlyArray<Event> => body.items)
const settled = (shop: Shop, count: number) =>
  eventually(
    "all events are worked on",
    eventsOf(shop),
    (events) =>
      events.length === count &&
      events.every(({ processingStatus }) => !["pending", "processing"].includes(processingStatus))
  )
const subscriptionsOf = (shop: Shop) =>
  Effect.map(shop.call("GET", "/subscriptions"), ({ body }): ReadonlyArray<Event> => body.items)
const copy = (row: Row): Row => structuredClone(row)

layer(paymentsWorld(), { excludeTestServices: true })("events of Stripe", (it) => {
  it.effect("are stored once each, however many copies come at once", () =>
    Effect.gen(function* () {
      const stripe = yield* Stripe
      const shop = yield* newShop()
      const payload = stripe.event("customer.subscription.created", shop.account.subscription())
      const statuses = yield* Effect.all(
        Array.from({ length: 50 }, () => shop.send(payload)),
        { concurrency: 50 }
      )
      assert.deepStrictEqual(new Set(statuses), new Set([200]))
      const [event] = yield* settled(shop, 1)
      assert.deepInclude(event, { type: "customer.subscription.created", processingStatus: "processed" })
      assert.strictEqual((yield* subscriptionsOf(shop)).length, 1)
      assert.strictEqual(yield* shop.send(payload), 200)
      assert.strictEqual((yield* eventsOf(shop)).length, 1)
    })
  )

  it.effect("leave the projection as Stripe is, in whatever order they come, and without the last", () =>
    Effect.gen(function* () {
      const stripe = yield* Stripe
      const shop = yield* newShop()
      const states = ["incomplete", "trialing", "active", "past_due", "canceled"]
      const orders = permutations([0, 1, 2, 3, 4])
      assert.strictEqual(orders.length, 120)
      const sent = yield* Effect.forEach(
        orders,
        Effect.fnUntraced(function* (order, nth) {
          const row = shop.account.subscription()
          const events = states.map((status) => {
            Object.assign(row, { status })
            return stripe.event("customer.subscription.updated", copy(row))
          })
          // In every fifth order the last one is lost.
          const arriving = nth % 5 === 0 ? order.filter((i) => i !== 4) : order
          for (const i of arriving) assert.strictEqual(yield* shop.send(events[i] ?? ""), 200)
          return arriving.length
        }),
        { concurrency: 8 }
      )
      const total = sent.reduce((sum, n) => sum + n, 0)
      const { sql } = yield* Plane
      yield* eventually(
        "all are processed",
        sql(
          `select status, count(*)::int as n from payment_event where connection_uid = '${shop.uid}' group by 1`
        ),
        (rows) => rows.length === 1 && rows[0]?.["status"] === "processed" && rows[0]["n"] === total
      )
      const statuses = yield* sql(
        `select content->>'status' as status, count(*)::int as n from payment_object where connection_uid = '${shop.uid}' group by 1`
      )
      assert.deepStrictEqual(statuses, [{ status: "canceled", n: 120 }])
    })
  )

  it.effect("show subscriptions in the contract's words, with a note where Stripe's are finer", () =>
    Effect.gen(function* () {
      const stripe = yield* Stripe
      const shop = yield* newShop()
      const product = shop.account.add("products", { name: "Pro", active: true })
      const price = shop.account.add("prices", {
        product: product["id"],
        currency: "usd",
        unit_amount: 500,
        active: true
      })
      const customer = shop.account.add("customers", { email: "a@example.com" })
      const paused = shop.account.subscription({
        status: "paused",
        customer: customer["id"],
        price: price["id"]
      })
      const expired = shop.account.subscription({ status: "incomplete_expired" })
      const all = [product, price, customer, paused, expired]
      for (const row of all) assert.strictEqual(yield* shop.send(stripe.event("any.thing", row)), 200)
      yield* settled(shop, 5)
      const found = yield* subscriptionsOf(shop)
      const [shownPaused, shownExpired] = [paused, expired].map(({ status }) =>
        found.find(({ note }) => note?.includes(`calls it ${status}`))
      )
      assert.deepInclude(shownPaused, {
        status: "unpaid",
        cancelAtPeriodEnd: false,
        currentPeriodEnd: "2027-01-15T08:00:00.000Z"
      })
      assert.strictEqual(shownExpired?.status, "canceled")
      const customers = (yield* shop.call("GET", "/customers")).body.items
      const prices = (yield* shop.call("GET", "/prices")).body.items
      assert.deepStrictEqual([shownPaused?.customerId, shownPaused?.priceId], [customers[0].id, prices[0].id])
      assert.strictEqual(prices[0].productId, (yield* shop.call("GET", "/products")).body.items[0].id)
      // No id of Stripe's is shown.
      assert.notMatch(JSON.stringify([found, customers, prices]), /(sub|cus|price|prod)_[0-9a-f]{6}/)
    })
  )

  it.effect("that nothing is kept of are ignored, and say why", () =>
    Effect.gen(function* () {
      const stripe = yield* Stripe
      const shop = yield* newShop({ scopes: ["products:write"] })
      const customer = shop.account.add("customers", { email: "a@example.com" })
      const payloads = [
        stripe.event("payout.paid", { id: "po_1", object: "payout" }),
        stripe.event("product.updated", shop.account.add("products", { name: "Live", active: true }), {
          livemode: true
        }),
        stripe.event("customer.created", customer)
      ]
      for (const payload of payloads) assert.strictEqual(yield* shop.send(payload), 200)
      const events = yield* settled(shop, 3)
      const reasons = yield* Effect.forEach(events, ({ id }) =>
        Effect.map(shop.call("GET", `/events/${id}`), ({ body }) => [body.processingStatus, body.reason])
      )
      assert.deepStrictEqual(reasons.toReversed(), [
        ["ignored", 'Nothing is kept of what "payout.paid" tells of'],
        ["ignored", "It is of live mode, and the key is of test mode"],
        ["ignored", "No scope of the connection is about customers"]
      ])
      const retried = yield* shop.call("POST", `/events/${events[0].id}/retry`)
      assert.deepStrictEqual([retried.status, retried.body.code], [409, "event_not_failed"])
    })
  )

  it.effect("are refused unless a secret that holds signed them within five minutes, either way", () =>
    Effect.gen(function* () {
      const { session, url } = yield* Plane
      const stripe = yield* Stripe
      const shop = yield* newShop()
      const now = Math.floor(Date.now() / 1_000)
      const payload = stripe.event("payout.paid", { id: "po_1", object: "payout" })
      const signed = (at: number) => stripe.sign(payload, shop.webhookSecret, at)
      const header = (text: string) => shop.send(payload, { header: text })
      assert.strictEqual(yield* header(signed(now - 290)), 200)
      assert.strictEqual(yield* header(signed(now - 310)), 400)
      assert.strictEqual(yield* header(signed(now + 290)), 200)
      assert.strictEqual(yield* header(signed(now + 330)), 400)
      assert.strictEqual(yield* header(signed(now + 3_600)), 400)
      assert.strictEqual(yield* header(`t=${now},${signed(now + 3_600)}`), 400)
      assert.strictEqual(yield* header(`${signed(now)},t=${now + 3_600}`), 400)
      assert.strictEqual(yield* header(""), 400)
      assert.strictEqual(yield* header("v1=00"), 400)
      assert.strictEqual(yield* shop.send(payload, { secret: newSecret() }), 400)
      assert.strictEqual(yield* shop.send(`${payload} `, { header: signed(now) }), 400)
      const post = (path: string, body: string) =>
        Effect.promise(async () => (await fetch(`${url}${path}`, { method: "POST", body })).status)
      assert.strictEqual(yield* post(`/v1/payments/webhooks/${crypto.randomUUID()}`, "{}"), 404)
      assert.strictEqual(yield* post("/v1/payments/webhooks/nobody", "{}"), 404)
      assert.strictEqual(yield* post(`/v1/payments/webhooks/${shop.uid}`, "x".repeat(256 * 1_024 + 1)), 413)

      // A new secret holds at once, and the one before it for a day.
      const next = newSecret()
      const changed = yield* shop.call("PATCH", "", { token: session, body: { webhookSecret: next } })
      assert.strictEqual(changed.status, 200, changed.text)
      assert.strictEqual(yield* shop.send(payload, { secret: next }), 200)
      const { sql } = yield* Plane
      const kept = sql(`select r.spec->'credentials'->>'webhookSecret' = c.webhook_secret as kept
        from payment_connection c join resource r on r.uid = c.uid where c.uid = '${shop.uid}'`)
      yield* eventually("the reconciler keeps it", kept, ([row]) => row?.["kept"] === true)
      assert.strictEqual(yield* shop.send(payload, { secret: next }), 200)
      assert.strictEqual(yield* shop.send(payload), 200)
    })
  )

  it.effect("are tried again while Stripe is away, and fail visibly when it refuses", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const stripe = yield* Stripe
      const shop = yield* newShop()
      const row = shop.account.subscription()
      // Both tries of the library.
      stripe.fail({ kind: 503, times: 2, of: ({ path }) => path === `/v1/subscriptions/${row["id"]}` })
      assert.strictEqual(yield* shop.send(stripe.event("customer.subscription.updated", row)), 200)
      const tried = yield* eventually(
        "it was tried",
        Effect.flatMap(eventsOf(shop), ([first]) => shop.call("GET", `/events/${first.id}`)),
        ({ body }) => body.attempts === 1 && body.processingStatus === "pending"
      )
      assert.match(tried.body.reason, /does not answer/)
      assert.isString(tried.body.nextAttemptAt)
      yield* sql(`update payment_event set due_at = now() where connection_uid = '${shop.uid}'`)
      yield* sql("select pg_notify('svc_payments', '')")
      yield* settled(shop, 1)
      assert.strictEqual((yield* subscriptionsOf(shop)).length, 1)

      stripe.grant(shop.secretKey, { products: "write" })
      assert.strictEqual(yield* shop.send(stripe.event("customer.subscription.updated", row)), 200)
      const [failed] = yield* settled(shop, 2)
      const detail = yield* shop.call("GET", `/events/${failed.id}`)
      assert.deepInclude(detail.body, {
        processingStatus: "failed",
        reason: "The key may not do this at Stripe"
      })
      stripe.grant(shop.secretKey, { subscriptions: "read" })
      const retried = yield* shop.call("POST", `/events/${failed.id}/retry`)
      assert.strictEqual(retried.status, 202, retried.text)
      yield* eventually(
        "it is processed",
        shop.call("GET", `/events/${failed.id}`),
        ({ body }) => body.processingStatus === "processed"
      )
    })
  )

  it.effect("that come while Stripe is away in every way are all worked on when it is back", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const stripe = yield* Stripe
      const shop = yield* newShop()
      const rows = Array.from({ length: 12 }, () => shop.account.subscription())
      const kinds = [500, 503, 429, "cut"] as const
      for (const [i, row] of rows.entries()) {
        const kind = kinds[i % kinds.length] ?? 500
        stripe.fail({ kind, times: 1_000, of: ({ path }) => path === `/v1/subscriptions/${row["id"]}` })
      }
      for (const row of rows)
        assert.strictEqual(yield* shop.send(stripe.event("customer.subscription.updated", row)), 200)
      const states =
        sql(`select status, count(*)::int as n, bool_and(attempts > 0 and reason is not null) as told
        from payment_event where connection_uid = '${shop.uid}' group by 1`)
      yield* eventually(
        "all were tried",
        states,
        ([one, ...others]) => others.length === 0 && one?.["status"] === "pending" && one["told"] === true
      )
      stripe.heal()
      yield* sql(`update payment_event set due_at = now() where connection_uid = '${shop.uid}'`)
      yield* sql("select pg_notify('svc_payments', '')")
      yield* eventually(
        "all are processed",
        states,
        ([one, ...others]) => others.length === 0 && one?.["status"] === "processed"
      )
      assert.strictEqual((yield* subscriptionsOf(shop)).length, 12)
    })
  )

  it.effect("tell of deletions; and what no webhook told is found by comparing with Stripe's lists", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const stripe = yield* Stripe
      const shop = yield* newShop()
      const [kept, deleted, silent] = ["kept", "deleted", "silent"].map((name) =>
        shop.account.add("products", { name, active: true })
      )
      // More than one page.
      for (let i = 0; i < 120; i++) shop.account.subscription({ status: i < 60 ? "canceled" : "active" })
      const rests = (since: string) =>
        eventually(
          "everything was compared",
          sql(`select 1 from payment_connection where uid = '${shop.uid}' and due_at > now() + interval '10 minutes'
            and compare_type is null and compare_since > '${since}'`),
          (rows) => rows.length === 1
        )
      const compare = Effect.gen(function* () {
        yield* rests("-infinity")
        const [now] = yield* sql("select clock_timestamp()::text as now")
        yield* sql(`update payment_connection set due_at = now() where uid = '${shop.uid}'`)
        yield* sql("select pg_notify('svc_payment_comparisons', '')")
        yield* rests(String(now?.["now"]))
      })
      yield* compare
      const names = Effect.map(shop.call("GET", "/products"), ({ body }) =>
        body.items.map(({ name }: { name: string }) => name).sort()
      )
      assert.deepStrictEqual(yield* names, ["deleted", "kept", "silent"])
      const subscriptions = `select count(*)::int as n from payment_object where connection_uid = '${shop.uid}' and type = 'subscription'`
      assert.deepStrictEqual(yield* sql(subscriptions), [{ n: 120 }])

      const products = shop.account.of("products")
      products.splice(products.indexOf(deleted ?? {}), 1)
      assert.strictEqual(yield* shop.send(stripe.event("product.deleted", deleted ?? {})), 200)
      yield* settled(shop, 1)
      assert.deepStrictEqual(yield* names, ["kept", "silent"])
      products.splice(products.indexOf(silent ?? {}), 1)
      Object.assign(kept ?? {}, { name: "renamed" })
      yield* compare
      assert.deepStrictEqual(yield* names, ["renamed"])
    })
  )

  it.effect("that the store could not take are refused or ignored, and keep out no other shop's", () =>
    Effect.gen(function* () {
      const stripe = yield* Stripe
      const [shop, hostile] = [yield* newShop(), yield* newShop()]
      const product = { object: "product" }
      const good = Array.from({ length: 20 }, () =>
        stripe.event("payout.paid", { id: "po_1", object: "payout" })
      )
      const bad = Array.from({ length: 20 }, () => stripe.event("x\u0000", { id: "prod_1", ...product }))
      const odd = ["x\u0000", "..", "\ud800"].map((id) => stripe.event("product.updated", { id, ...product }))
      const sent = (from: Shop, payloads: ReadonlyArray<string>) =>
        Effect.forEach(payloads, (payload) => from.send(payload), { concurrency: "unbounded" })
      const statuses = yield* Effect.all([sent(shop, good), sent(hostile, bad), sent(hostile, odd)], {
        concurrency: "unbounded"
      })
      assert.deepStrictEqual(
        statuses.map((of) => [...new Set(of)]),
        [[200], [400], [200]]
      )
      const events = yield* settled(hostile, odd.length)
      assert.isTrue(events.every(({ processingStatus }) => processingStatus === "ignored"))
    })
  )

  it.effect("that wait for a key have used up no attempt", () =>
    Effect.gen(function* () {
      const stripe = yield* Stripe
      const shop = yield* newShop()
      const row = shop.account.subscription()
      stripe.revoke(shop.secretKey)
      assert.strictEqual(yield* shop.send(stripe.event("customer.subscription.updated", row)), 200)
      const waiting = yield* eventually(
        "it waits",
        Effect.flatMap(eventsOf(shop), ([first]) => shop.call("GET", `/events/${first.id}`)),
        ({ body }) => body.processingStatus === "pending" && body.reason !== null
      )
      assert.match(waiting.body.reason, /new restricted key/)
      assert.strictEqual(waiting.body.attempts, 0)

      // Others of the connection are not worked on either: those of another shop that come later are.
      const next = shop.account.subscription()
      assert.strictEqual(yield* shop.send(stripe.event("customer.subscription.updated", next)), 200)
      const another = yield* newShop()
      const row2 = another.account.subscription()
      yield* another.send(stripe.event("customer.subscription.updated", row2))
      yield* settled(another, 1)
      const [untouched] = yield* eventsOf(shop)
      const { body } = yield* shop.call("GET", `/events/${untouched.id}`)
      assert.deepInclude(body, { processingStatus: "pending", reason: null, attempts: 0 })

      const { call, session } = yield* Plane
      const secretKey = stripe.key(undefined, `acct_${shop.project}`)
      const connected = yield* call("PUT", shop.base, {
        token: session,
        body: {
          secretKey,
          webhookSecret: shop.webhookSecret,
          credentialScopes: allScopes,
          allowedRedirectOrigins: []
        }
      })
      assert.strictEqual(connected.status, 200, connected.text)
      const done = yield* settled(shop, 2)
      assert.isTrue(done.every(({ processingStatus }) => processingStatus === "processed"))
    })
  )

  it.effect("are listed in pages, newest first, and nobody else sees them", () =>
    Effect.gen(function* () {
      const stripe = yield* Stripe
      const [shop, other] = [yield* newShop(), yield* newShop()]
      for (let i = 0; i < 5; i++) {
        assert.strictEqual(
          yield* shop.send(stripe.event(`payout.n${i}`, { id: "po_1", object: "payout" })),
          200
        )
      }
      const first = yield* shop.call("GET", "/events?limit=3")
      const second = yield* shop.call("GET", `/events?limit=3&cursor=${first.body.nextCursor}`)
      const types = [...first.body.items, ...second.body.items].map(({ type }: Event) => type)
      assert.deepStrictEqual(types, ["payout.n4", "payout.n3", "payout.n2", "payout.n1", "payout.n0"])
      assert.isNull(second.body.nextCursor)
      assert.isEmpty(yield* eventsOf(other))
      const id = first.body.items[0].id
      assert.strictEqual((yield* other.call("GET", `/events/${id}`)).status, 404)
      assert.strictEqual((yield* other.call("POST", `/events/${id}/retry`)).status, 404)
      assert.strictEqual((yield* other.call("GET", `/events?cursor=${first.body.nextCursor}`)).status, 422)
    })
  )
})

const permutations = (items: ReadonlyArray<number>): ReadonlyArray<ReadonlyArray<number>> =>
  items.length === 0
    ? [[]]
    : items.flatMap((one) =>
        permutations(items.filter((other) => other !== one)).map((rest) => [one, ...rest])
      )
