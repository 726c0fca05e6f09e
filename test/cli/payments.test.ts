/** Customer payments from the command line. */
import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { type StandIn, stripeStandIn } from "#test/payments/stripe/stand-in.ts"
import { newSecret } from "#test/payments/world.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { Operator, signedIn } from "./control-plane.ts"

class Stripe extends Context.Service<Stripe, StandIn>()("test/Stripe") {}
const world = Layer.unwrap(
  Effect.map(stripeStandIn, (stripe) =>
    Layer.merge(signedIn({}, { SVC_STRIPE_URL: stripe.url }), Layer.succeed(Stripe, stripe))
  )
)

layer(world, { excludeTestServices: true, timeout: "3 minutes" })("payments", (it) => {
  it.effect("are connected, sold with, listened to and disconnected", () =>
    Effect.gen(function* () {
      const { svc } = yield* Operator
      const { call, url } = yield* Plane
      const stripe = yield* Stripe
      yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Shop", slug: "shop" } })
      const [key, secret] = [stripe.key(), newSecret()]
      const connect = ["payments", "connect", "shop", "--redirect-origin", "https://shop.example.com"]
      const scopes = ["products:write", "prices:write", "checkout_sessions:write"].flatMap((one) => [
        "--scope",
        one
      ])
      const [none, without, connected] = [
        yield* svc(["payments", "get", "shop"]),
        yield* svc(connect, { stdin: `${key}\n${secret}` }),
        yield* svc([...connect, ...scopes], { stdin: `${key}\n${secret}\n` })
      ]
      assert.match(none.stderr, /No Stripe account is connected/)
      assert.strictEqual(without.code, 2)
      assert.strictEqual(connected.code, 0, connected.stderr)
      assert.match(connected.stdout, /State +ready/)
      assert.notInclude(connected.stdout + connected.stderr, key)

      const run = Effect.fnUntraced(function* (args: ReadonlyArray<string>) {
        const ran = yield* svc(["payments", ...args])
        assert.strictEqual(ran.code, 0, `${args.join(" ")}: ${ran.stderr}`)
        return ran.stdout.trim()
      })
      const product = yield* run(["products", "create", "shop", "Pro"])
      const price = yield* run(["prices", "create", "shop", product, "--amount", "500", "--currency", "usd"])
      const page = yield* run([
        "checkout",
        "shop",
        "--price",
        price,
        "--success-url",
        "https://shop.example.com/"
      ])
      assert.match(page, /^https:\/\/checkout\.stripe\.com\//)
      assert.match(yield* run(["prices", "ls", "shop"]), /500 usd +once/)
      yield* run(["products", "update", "shop", product, "--no-active"])
      assert.match(yield* run(["products", "ls", "shop"]), /Pro +archived/)

      const config = (yield* call("GET", "/v1/orgs/main/projects/shop/payments")).body
      const listening = yield* Effect.forkScoped(
        svc(["payments", "listen", "shop", "--count", "1", "--json"])
      )
      const send = Effect.promise(() => {
        const payload = stripe.event("payout.paid", { id: "po_1", object: "payout" })
        return fetch(`${url}${new URL(config.webhookUrl).pathname}`, {
          method: "POST",
          headers: { "stripe-signature": stripe.sign(payload, secret) },
          body: payload
        })
      })
      const heard = yield* eventually(
        "what is listened to is heard",
        Effect.andThen(
          send,
          Effect.sync(() => listening.pollUnsafe())
        ),
        (exit) => exit !== undefined
      )
      assert.include(JSON.stringify(heard), "payout.paid")
      const [first] = JSON.parse(yield* run(["events", "ls", "shop", "--json"]))
      assert.match(yield* run(["events", "get", "shop", first.id]), /Nothing is kept of what/)

      assert.strictEqual((yield* svc(["payments", "disconnect", "shop"])).code, 2)
      yield* run(["disconnect", "shop", "--yes"])
      assert.match((yield* svc(["payments", "get", "shop"])).stderr, /No Stripe account/)
    })
  )
})
