import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { jsonOf } from "#src/cli/json-text.ts"

const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth)

it.effect("JSON on the command line is read up to a depth, and refused in a sentence beyond it", () =>
  Effect.gen(function* () {
    assert.deepStrictEqual(yield* jsonOf("--body", `{"a":${nested(63)}}`), { a: JSON.parse(nested(63)) })
    for (const depth of [65, 50_000]) {
      const refused = yield* Effect.flip(jsonOf("--body", nested(depth)))
      assert.strictEqual(refused.message, "--body is nested deeper than 64 levels")
    }
    assert.strictEqual((yield* Effect.flip(jsonOf("The message", "{"))).message, "The message is not JSON")
  })
)
