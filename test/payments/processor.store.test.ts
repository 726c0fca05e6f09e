/**
 * What the platform relies on at Stripe, asked of the server that stands in for it, and of a sandbox account where two
 * variables name one: SVC_TEST_STRIPE_KEY, a restricted key with the rights that the scopes need and that to write webhook
 * endpoints, and SVC_TEST_STRIPE_SECRET, any signing secret. What is made there is archived or deleted.
 */
import { randomUUID } from "node:crypto"
import { assert, describe, it } from "@effect/vitest"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import Stripe from "stripe"
import { checkKey } from "#src/payments/check-key.ts"
import { decodeList, intentEntry, seen, wasDeleted } from "#src/payments/objects.ts"
import { Processor } from "#src/payments/Processor.ts"
import { eventually } from "#test/setup/wait.ts"
import { stripeStandIn, usualRights } from "./stripe/stand-in.ts"
import { newSecret } from "./world.ts"

interface Target {
  readonly url: string | undefined
  readonly key: string
  readonly secret: string
}

const suite = (name: string, skipped: boolean, target: Effect.Effect<Target, never, Scope.Scope>) =>
  describe.skipIf(skipped)(name, () => {
    it.live("is as the platform relies on", () =>
      Effect.gen(function* () {
        const { url, key: text, secret } = yield* target
        const provider = ConfigProvider.fromEnv({ env: url === undefined ? {} : { SVC_STRIPE_URL: url } })
        const layer = Processor.layer.pipe(Layer.provide(ConfigProvider.layer(provider)))
        const key = Redacted.make(text)
        yield* Effect.gen(function* () {
          const processor = yield* Processor
          const post = (path: `/v1/${string}`, params: object, idempotencyKey = randomUUID()) =>
            processor.ask("test", { key, method: "POST", path, params: { ...params }, idempotencyKey })
          const get = (path: `/v1/${string}`) => processor.ask("test", { key, method: "GET", path })
          const of = (object: unknown) => Option.getOrThrow(seen(object))

          assert.isUndefined(
            yield* checkKey(processor, key, ["products:write", "prices:write", "customers:write"], [])
          )
          const lost = Redacted.make(`rk_test_${"0".repeat(24)}`)
          assert.deepStrictEqual(yield* checkKey(processor, lost, ["products:read"], []), {
            refusal: "revoked"
          })

          // The same key makes one thing, and belongs to its parameters.
          const [once, intent] = [randomUUID(), randomUUID()]
          const product = { name: "Platform test", metadata: { [intentEntry]: intent } }
          const made = of(yield* post("/v1/products", product, once))
          assert.strictEqual(of(yield* post("/v1/products", product, once)).processorId, made.processorId)
          assert.strictEqual(made.intent, intent)
          const reused = yield* Effect.flip(post("/v1/products", { ...product, name: "Other" }, once))
          assert.strictEqual(reused.reason, "idempotency")
          const path = `/v1/products/${made.processorId}` as const
          assert.deepStrictEqual(of(yield* get(path)).content, made.content)
          const changed = of(yield* post(path, { active: false, metadata: { [intentEntry]: "" } }))
          assert.deepStrictEqual([changed.content.active, changed.intent], [false, null])

          // Lists begin with the newest.
          const since = made.created - 300
          const listed = Option.getOrThrow(
            decodeList(yield* get(`/v1/products?limit=1&created[gte]=${since}`))
          )
          assert.strictEqual(of(listed.data[0]).processorId, made.processorId)

          const missing = yield* Effect.flip(get("/v1/products/prod_nothing"))
          assert.strictEqual(missing.reason, "missing")
          const bad = yield* Effect.flip(
            post("/v1/prices", { product: made.processorId, unit_amount: 5, currency: "xxx" })
          )
          assert.strictEqual(bad.reason, "rejected")
          assert.match(bad.said ?? "", /currency/i)

          // A customer that was deleted is answered as such, or is not there.
          const customer = of(yield* post("/v1/customers", { email: "test@example.com" }))
          const one = `/v1/customers/${customer.processorId}` as const
          yield* processor.ask("test", { key, method: "DELETE", path: one })
          const gone = yield* Effect.catch(get(one), ({ reason }) =>
            Effect.succeed({ id: reason, deleted: true })
          )
          assert.isTrue(wasDeleted(gone))

          const payload = JSON.stringify({
            id: "evt_1",
            type: "payout.paid",
            created: 1,
            livemode: false,
            data: { object: { id: "po_1", object: "payout" } }
          })
          const header = new Stripe("none").webhooks.generateTestHeaderString({ payload, secret })
          const verified = yield* processor.verify(Buffer.from(payload), header, [Redacted.make(secret)])
          assert.strictEqual(verified?.id, "evt_1")
        }).pipe(Effect.provide(layer))
      }).pipe(Effect.scoped)
    )
  })

suite(
  "the server that stands in for Stripe",
  false,
  Effect.map(stripeStandIn, (standIn) => ({
    url: standIn.url,
    key: standIn.key({ ...usualRights, webhook_endpoints: "write" }),
    secret: newSecret()
  }))
)

const { SVC_TEST_STRIPE_KEY: sandboxKey, SVC_TEST_STRIPE_SECRET: sandboxSecret } = process.env
suite(
  "a sandbox account of Stripe (SVC_TEST_STRIPE_KEY, SVC_TEST_STRIPE_SECRET)",
  sandboxKey === undefined || sandboxSecret === undefined,
  Effect.succeed({ url: undefined, key: sandboxKey ?? "", secret: sandboxSecret ?? "" })
)

it.effect("a request that has no turn in time is not sent later", () =>
  Effect.gen(function* () {
    const standIn = yield* stripeStandIn
    let answer = () => {}
    const until = new Promise<void>((resolve) => {
      answer = resolve
    })
    standIn.fail({ kind: "slow", times: 64, until })
    const provider = ConfigProvider.fromEnv({ env: { SVC_STRIPE_URL: standIn.url } })
    const layer = Processor.layer.pipe(Layer.provide(ConfigProvider.layer(provider)))
    yield* Effect.gen(function* () {
      const processor = yield* Processor
      const key = Redacted.make(standIn.key())
      const get = (path: `/v1/${string}`) => processor.ask("test", { key, method: "GET", path })
      const slow = yield* Effect.forkScoped(
        Effect.all(
          Array.from({ length: 64 }, () => get("/v1/products")),
          { concurrency: "unbounded" }
        )
      )
      yield* eventually(
        "all turns are taken",
        Effect.sync(() => standIn.calls.length === 64)
      )
      const late = yield* Effect.forkScoped(Effect.flip(get("/v1/customers")))
      yield* TestClock.adjust("6 seconds")
      assert.strictEqual((yield* Fiber.join(late)).reason, "away")
      answer()
      yield* Fiber.join(slow)
      yield* get("/v1/prices")
      assert.isFalse(standIn.calls.some(({ path }) => path === "/v1/customers"))
    }).pipe(Effect.provide(layer))
  })
)

it.effect("a request that is never answered ends, as one that may be tried again", () =>
  Effect.gen(function* () {
    const standIn = yield* stripeStandIn
    standIn.fail({ kind: "hang", times: 9 })
    const provider = ConfigProvider.fromEnv({ env: { SVC_STRIPE_URL: standIn.url } })
    const layer = Processor.layer.pipe(Layer.provide(ConfigProvider.layer(provider)))
    const failed = yield* Effect.gen(function* () {
      const processor = yield* Processor
      const key = Redacted.make(standIn.key())
      const asking = yield* Effect.forkScoped(
        Effect.flip(processor.ask("test", { key, method: "GET", path: "/v1/products" }))
      )
      yield* eventually(
        "it is asked",
        Effect.sync(() => standIn.calls.length > 0)
      )
      yield* TestClock.adjust("30 seconds")
      return yield* Fiber.join(asking)
    }).pipe(Effect.provide(layer))
    assert.strictEqual(failed.reason, "away")
  })
)
