import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { readRequest } from "#src/ai-gateways/runtime/request.ts"

it.effect("a prompt has no more tokens than it has bytes, and an image as many as its upstream counts", () =>
  Effect.gen(function* () {
    const image = { type: "image_url", image_url: { url: `data:image/png;base64,${"A".repeat(4_000)}` } }
    const text = (content: unknown) => JSON.stringify({ model: "m", messages: [{ role: "user", content }] })
    const hex = "0x7f".repeat(1_000)
    const plain = yield* readRequest(text(hex))
    assert.isAtLeast(plain.mostInputTokens(25_000), hex.length)
    assert.isBelow(plain.inputTokens, hex.length / 2)
    const seen = yield* readRequest(text([image, image]))
    assert.isAtLeast(seen.mostInputTokens(25_501), 2 * 25_501)
    assert.isBelow(seen.mostInputTokens(0), 500)
  })
)
