import { assert, it } from "@effect/vitest"
import { deepestJson, isTooDeep, tooDeepAt } from "#schemas/json-depth.ts"

it("levels are counted in texts and in values alike, at any depth, and not within texts", () => {
  for (const depth of [1, 64, 65, 100_000]) {
    const text = `${'{"a":'.repeat(depth - 1)}[1]${"}".repeat(depth - 1)}`
    let value: unknown = [1]
    for (let level = 1; level < depth; level++) value = { a: value }
    assert.strictEqual(isTooDeep(value), depth > deepestJson, `value of ${depth}`)
    assert.strictEqual(tooDeepAt(text), depth > deepestJson ? 5 * deepestJson : undefined, `text of ${depth}`)
  }
  assert.isUndefined(tooDeepAt(JSON.stringify(`"\\"${"[{".repeat(100)}`)))
  assert.isUndefined(tooDeepAt(`[${"[],".repeat(1_000)}[]]`))
  assert.isFalse(isTooDeep(Array.from({ length: 1_000 }, () => [[]])))
  for (const flat of [null, 1, "[[", undefined, []]) assert.isFalse(isTooDeep(flat, 1))
})
