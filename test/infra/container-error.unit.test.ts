import { assert, it } from "@effect/vitest"
import { containerError } from "#src/infra/containers/error.ts"

it("what a container engine says becomes one short line that can be stored", () => {
  const said = (message: string) =>
    containerError("The image x cannot be fetched")({ json: { message } }).message
  assert.strictEqual(said("denied:\n  no\0 access"), "The image x cannot be fetched: denied: no access")
  assert.isBelow(said("long ".repeat(10_000)).length, 600)
  assert.include(containerError("It failed")("a\0b").message, "ab")
})
