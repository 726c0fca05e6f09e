import { assert, it } from "@effect/vitest"
import { publicSpec } from "#src/manifest/patch.ts"
import { Toy } from "#test/setup/toy-kind.ts"

it("what a kind says is sealed is shown masked, and what it says is internal is not shown", () => {
  const kind = {
    ...Toy,
    fields: ["size", "tokens", "version"],
    internal: ["version"],
    sealed: { field: "tokens", secret: (key: string) => `tokens/${key}` }
  }
  assert.deepStrictEqual(publicSpec(kind, { size: 1, tokens: { A: "fingerprint" }, version: 3 }), {
    size: 1,
    tokens: { A: "****" }
  })
})
