import { assert, describe, it } from "@effect/vitest"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { checkedInputOf, checkedWhenDecoded, inputOf, withDefault } from "#schemas/input.ts"
import { faultsOf } from "#src/api/failure.ts"

const even = checkedWhenDecoded(
  Schema.Int,
  Schema.Int.check(Schema.makeFilter((one: number) => (one % 2 === 0 ? undefined : "must be even")))
)
const Spec = Schema.Struct({
  name: Schema.String,
  size: withDefault(even, 4, "How large"),
  inner: withDefault(Schema.Struct({ depth: withDefault(even, 2) }), {}),
  version: withDefault(Schema.Int, 1)
})
const Input = inputOf(Spec, ["version"])
const Checked = checkedInputOf(Spec, ["version"])
const faults = (schema: Schema.Codec<unknown, unknown>, value: unknown) => {
  const decoded = Schema.decodeUnknownResult(schema, { errors: "all", onExcessProperty: "error" })(value)
  return Result.isFailure(decoded) ? faultsOf("", decoded.failure.issue) : []
}

describe("what may be given of a specification", () => {
  it("leaves out what has a default, at every depth, and is completed by decoding", () => {
    const least: typeof Input.Type = { name: "a" }
    const some: typeof Input.Type = { name: "a", inner: {} }
    for (const given of [least, some]) {
      assert.deepStrictEqual(Schema.decodeSync(Input)(given), given)
      assert.deepStrictEqual(Schema.decodeSync(Spec)(given), {
        name: "a",
        size: 4,
        inner: { depth: 2 },
        version: 1
      })
    }
  })

  it("has nothing that the platform sets, and what is needed is needed", () => {
    assert.deepStrictEqual(
      faults(Input, { version: 2 }).map(({ pointer }) => pointer),
      ["/version", "/name"]
    )
  })

  it("has the form alone, or is checked like the specification", () => {
    const odd = { name: "a", size: 3, inner: { depth: 5 } }
    assert.deepStrictEqual(faults(Input, odd), [])
    const expected = [
      { pointer: "/size", message: "must be even" },
      { pointer: "/inner/depth", message: "must be even" }
    ]
    assert.deepStrictEqual(faults(Checked, odd), expected)
    assert.deepStrictEqual(faults(Spec, odd), expected)
    // It stays what was given.
    assert.deepStrictEqual(Schema.decodeSync(Checked)({ name: "a" }), { name: "a" })
  })

  it("is described with its defaults", () => {
    const { schema } = Schema.toJsonSchemaDocument(Input)
    assert.include(JSON.stringify(schema), '"description":"How large","default":4')
  })
})
