import { assert, it } from "@effect/vitest"
import { storableJson, storableText } from "#src/storable.ts"

it("text loses what the store refuses, and keeps everything else", () => {
  assert.strictEqual(storableText("as it is: é 😀 \n\t"), "as it is: é 😀 \n\t")
  assert.strictEqual(storableText("a\0b\ud800c\udc00"), "ab\ufffdc\ufffd")
})

it("long text is cut, and never within a character", () => {
  assert.strictEqual(storableText("12345", 5), "12345")
  assert.strictEqual(storableText("123456", 5), "1234…")
  assert.strictEqual(storableText("123😀56", 5), "123…")
  assert.isAtMost(storableText("x".repeat(1_000_000)).length, 2_000)
})

it("JSON is cleaned in keys and strings at every depth, and is the same otherwise", () => {
  const sound = { list: [1, null, true, { text: "😀" }], empty: {} }
  assert.deepStrictEqual(storableJson(sound), sound)
  assert.deepStrictEqual(storableJson({ "k\0ey": [{ in: "a\ud800" }] }), { key: [{ in: "a\ufffd" }] })
})
