import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { RateLimits } from "#src/access/RateLimits.ts"
import { Db } from "#src/store/Db.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { testDb } from "#test/setup/database.ts"
import { bucketsStandStill } from "#test/setup/rate-limits.ts"

/** The limits as another process sees them. */
const another = Effect.map(Layer.build(Layer.fresh(RateLimits.layer)), Context.get(RateLimits))
layer(testDb(), { excludeTestServices: true })("rate limits", (it) => {
  it.effect("hold across processes: together they let through what the bucket has", () =>
    Effect.gen(function* () {
      const [one, two] = [yield* another, yield* another]
      const began = performance.now()
      const takes = yield* Effect.forEach(
        Array.from({ length: 300 }, (_, i) => (i % 2 === 0 ? one : two)),
        (limits) => limits.take("shared", 100),
        { concurrency: "unbounded" }
      )
      const allowed = takes.filter((taken) => taken.allowed).length
      // The bucket refills by 1.7 tokens a second while this runs, and a drawn rest may stay with either process.
      const refilled = ((performance.now() - began) / 60_000) * 100
      assert.isAtLeast(allowed, 91)
      assert.isAtMost(allowed, 100 + Math.ceil(refilled))
      for (const taken of takes) {
        if (!taken.allowed) assert.isAtLeast(taken.retryAfter, 1)
      }
    })
  )

  it.effect("many requests at once in one process do not hoard what another needs", () =>
    Effect.gen(function* () {
      const [one, two] = [yield* another, yield* another]
      yield* Effect.forEach(Array.from({ length: 50 }), () => one.take("busy", 600), {
        concurrency: "unbounded"
      })
      const other = yield* two.take("busy", 600)
      assert.isTrue(other.allowed)
      // 50 tokens were used, in draws of 20.
      assert.isAtLeast(other.remaining, 600 - 60 - 1)
    })
  )

  it.effect("a bucket refills with time, up to its size", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const empty = yield* another
      yield* sql`insert into rate_limit (bucket, tokens, updated_at) values ('slow', 0.25, now() + interval '1 hour')`
      const refused = yield* empty.take("slow", 6)
      assert.isFalse(refused.allowed)
      assert.strictEqual(refused.retryAfter, 8)
      // Three tokens, and one for each ten seconds that this takes.
      yield* sql`update rate_limit set updated_at = now() - interval '30 seconds' where bucket = 'slow'`
      const later = yield* (yield* another).take("slow", 6)
      assert.isTrue(later.allowed)
      assert.isAtLeast(later.remaining, 2)
      assert.isAtMost(later.remaining, 4)
      yield* sql`update rate_limit set updated_at = now() - interval '1 day' where bucket = 'slow'`
      assert.strictEqual((yield* (yield* another).take("slow", 6)).remaining, 5)
      // A clock that went back takes nothing away.
      yield* sql`update rate_limit set updated_at = now() + interval '1 hour', tokens = 5 where bucket = 'slow'`
      assert.isTrue((yield* (yield* another).take("slow", 6)).allowed)
    })
  )
})

layer(testPlane({ signInRateLimit: 10 }), { excludeTestServices: true })("limits in answers", (it) => {
  it.effect("say what is counted, how much of it there is, and when to come back", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      yield* bucketsStandStill
      const allowed = yield* call("GET", "/v1/me")
      assert.match(allowed.headers.get("ratelimit") ?? "", /^"credential";r=\d+;t=0$/)
      assert.strictEqual(allowed.headers.get("ratelimit-policy"), '"credential";q=100000;w=60')
      const tries = yield* Effect.forEach(Array.from({ length: 14 }), (_, i) =>
        call("POST", "/v1/auth/sign-in", {
          token: null,
          body: { email: `nobody-${i}@example.test`, password: "wrong" }
        })
      )
      const refused = tries.find(({ status }) => status === 429)
      assert.strictEqual(refused?.body.code, "rate_limited")
      assert.strictEqual(refused?.headers.get("ratelimit-policy"), '"sign-in";q=10;w=60')
      assert.match(refused?.headers.get("ratelimit") ?? "", /^"sign-in";r=0;t=[1-9]\d*$/)
      assert.isAtLeast(Number(refused?.headers.get("retry-after")), 1)
      assert.strictEqual(tries.filter(({ status }) => status === 401).length, 10)
    })
  )
})
