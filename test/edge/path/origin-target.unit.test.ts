import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { isLookedUp, originTarget } from "#src/edge/origin-target.ts"

it("only names that others keep are looked up again", () => {
  for (const origin of ["https://app.example.com", "http://localhost.example.com:80"])
    assert.isTrue(isLookedUp(origin), origin)
  for (const origin of [undefined, "http://127.0.0.1:3000", "http://[::1]:3000", "http://localhost:3000"])
    assert.isFalse(isLookedUp(origin), origin)
  assert.isFalse(isLookedUp("http://app.localhost."))
})

it.effect("a host that no line of HAProxy's maps can hold is told", () =>
  Effect.gen(function* () {
    const found = yield* originTarget("http://my$app.example.com", undefined, [])
    assert.isUndefined(found.target)
    assert.include(found.trouble, "http://my$app.example.com")
  })
)
