/** How features become one process. */
import { assert, it, vi } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as HttpRouter from "effect/http/HttpRouter"
import * as Layer from "effect/Layer"
import * as Reactivity from "effect/reactivity/Reactivity"
import type { Server } from "#src/feature.ts"
import type { Queues } from "#src/queues/api.ts"
import * as webhookLoop from "#src/webhooks/deliver.ts"
import { testPlane } from "#test/setup/control-plane.ts"

it.live("what several features use is built once for the process", () =>
  Effect.gen(function* () {
    const memo: Layer.MemoMap = Object.getPrototypeOf(Layer.makeMemoMapUnsafe())
    const builds = new Map<Layer.Any, number>()
    const getOrElseMemoize = memo.getOrElseMemoize
    yield* Effect.acquireRelease(
      Effect.sync(() =>
        vi.spyOn(memo, "getOrElseMemoize").mockImplementation(function (
          this: Layer.MemoMap,
          layer,
          scope,
          build
        ) {
          return getOrElseMemoize.call(this, layer, scope, (map, inner) => {
            builds.set(layer, (builds.get(layer) ?? 0) + 1)
            return build(map, inner)
          }) as never
        })
      ),
      (spy) => Effect.sync(() => spy.mockRestore())
    )
    yield* Layer.build(testPlane())
    assert.isAbove(builds.size, 100)
    // Each of the process's two HTTP servers has a router, and each pool of connections has this part of its client.
    const mayRepeat: ReadonlyArray<Layer.Any> = [Layer.empty, HttpRouter.layer, Reactivity.layer]
    const repeated = [...builds].filter(([layer, times]) => times > 1 && !mayRepeat.includes(layer))
    assert.deepStrictEqual(repeated, [])
  })
)

it("a feature without a handler, or that needs what neither it nor the core provides, does not compile", () => {
  const withoutHandlers: Server<typeof Queues> = {
    // @ts-expect-error: no handlers of the group's operations
    handlers: Layer.empty
  }
  const withoutService: Server = {
    handlers: Layer.empty,
    // @ts-expect-error: the records of deliveries are not provided
    loops: webhookLoop.layer
  }
  assert.isDefined([withoutHandlers, withoutService])
})
