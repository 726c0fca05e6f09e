/** The bound on requests that are worked on at once. */
import { assert, it } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import { admission, RequestLimit } from "#src/api/overload.ts"

const atOnce = 3

it.effect(
  "requests beyond the bound are refused at once, and those whose body is on its way do not count",
  () =>
    Effect.gen(function* () {
      const admitted = yield* admission
      const go = yield* Deferred.make<void>()
      const held = Effect.as(Deferred.await(go), HttpServerResponse.empty({ status: 204 }))
      const begin = (complete: boolean) =>
        Effect.forkChild(admitted({ complete }, held), { startImmediately: true })
      const now = Effect.map(
        admitted({ complete: true }, Effect.succeed(HttpServerResponse.empty({ status: 200 }))),
        ({ status, headers }) => [status, headers["retry-after"]] as const
      )
      const arriving = yield* Effect.forEach([1, 2, 3, 4, 5], () => begin(false))
      const whole = yield* Effect.forEach([1, 2], () => begin(true))
      assert.deepStrictEqual(yield* now, [200, undefined])
      const last = yield* begin(true)
      const [status, retryAfter] = yield* now
      assert.strictEqual(status, 503)
      assert.match(retryAfter ?? "", /^[1-5]$/)
      yield* Fiber.interrupt(last)
      assert.deepStrictEqual(yield* now, [200, undefined])
      const again = yield* begin(true)
      assert.strictEqual((yield* now)[0], 503)
      yield* Deferred.succeed(go, undefined)
      for (const fiber of [...arriving, ...whole, again])
        assert.strictEqual((yield* Fiber.join(fiber)).status, 204)
      assert.deepStrictEqual(yield* now, [200, undefined])
    }).pipe(Effect.provideService(RequestLimit, { atOnce }))
)
