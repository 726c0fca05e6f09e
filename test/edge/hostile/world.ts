/** Two apps of two organizations behind one edge, and what holds for whatever reaches them. */
import { assert } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { type RunningProxy, rawApp, requestsIn, startProxy } from "./proxy.ts"

export const shop = "shop.apps.localhost"
export const other = "other.apps.localhost"
export const environment = "019aa000-0000-7000-8000-000000000001"

export class World extends Context.Service<
  World,
  {
    readonly proxy: RunningProxy
    /** Heads and bodies of the requests that the app of `shop` saw, whose target is this. */
    readonly saw: (target: string) => ReadonlyArray<{ readonly head: string; readonly body: string }>
    /** Holds for every byte that an app was sent. */
    readonly nothingSlippedThrough: () => void
  }
>()("test/World") {}

export const world = Layer.effect(
  World,
  Effect.gen(function* () {
    const mine = yield* rawApp
    const others = yield* rawApp
    const proxy = yield* startProxy(
      [
        { host: shop, environment, port: mine.port },
        { host: other, environment: "019aa000-0000-7000-8000-000000000002", port: others.port }
      ],
      { headerSeconds: 2 }
    )
    return World.of({
      proxy,
      saw: (target) =>
        mine.connections.flatMap(({ bytes }) =>
          requestsIn(bytes).requests.filter(({ head }) => head.split(" ")[1] === target)
        ),
      nothingSlippedThrough: () => {
        assert.deepStrictEqual(others.connections, [])
        for (const { bytes } of mine.connections) {
          const { requests } = requestsIn(bytes)
          for (const { head } of requests) {
            const [line = "", ...fields] = head.split("\r\n")
            assert.match(line, /^[A-Z]+ (\/\S*|\*) HTTP\/1\.[01]$/)
            assert.notInclude(line, "smuggled")
            // biome-ignore lint/suspicious/noControlCharactersInRegex: no field may have these.
            for (const field of fields) assert.match(field, /^[!#$%&'*+.^_`|~0-9a-z-]+: ?[^\u0000\r\n]*$/i)
            const names = fields.map((field) => field.split(":")[0]?.toLowerCase() ?? "")
            const count = (name: string) => names.filter((one) => one === name).length
            assert.strictEqual(count("host"), 1, head)
            assert.isAtMost(count("content-length") + count("transfer-encoding"), 1, head)
            for (const name of ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"])
              assert.strictEqual(count(name), 1, head)
            assert.notMatch(head, /evil/)
          }
        }
      }
    })
  })
)
