import { assert, it } from "@effect/vitest"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { DisplayName, lineFault, toDisplayName } from "#schemas/display-text.ts"
import { ProjectSpec } from "#schemas/project.ts"

const decode = Schema.decodeUnknownResult(DisplayName)

it("a name is one line that shows what it holds; a fault names the character", () => {
  for (const name of [
    "a",
    "Zoë's Café №1",
    "店舗",
    "متجر",
    "👩‍👩‍👧 shop",
    "a  b",
    "x".repeat(100),
    "😀".repeat(50)
  ]) {
    assert.isTrue(Result.isSuccess(decode(name)), name)
    assert.strictEqual(toDisplayName(name), name)
  }
  const control = (code: string) => `must not contain control characters (it has U+${code})`
  const turned = (code: string) =>
    `must not contain characters that change the direction of text (it has U+${code})`
  const cases: ReadonlyArray<readonly [name: string, fault: string]> = [
    ["\u001b[31mred", control("001B")],
    ["a\nb", control("000A")],
    ["a\0b", control("0000")],
    ["a\u009bb", control("009B")],
    ["a\u2028b", control("2028")],
    ["invoice\u202efdp.exe", turned("202E")],
    ["\u2066a\u2069", turned("2066")],
    ["\u200fa", turned("200F")],
    ["\u061ca", turned("061C")],
    [" a", "must not begin or end with blanks"],
    ["a\u00a0", "must not begin or end with blanks"],
    ["\ud800a", "must be Unicode text without lone surrogates"]
  ]
  for (const [name, fault] of cases) {
    assert.strictEqual(lineFault(name), fault)
    assert.isTrue(Result.isFailure(decode(name)))
    assert.isUndefined(lineFault(toDisplayName(name)))
  }
  for (const name of ["", "x".repeat(101)]) assert.isTrue(Result.isFailure(decode(name)))
  // A pair of surrogates is not cut in two.
  assert.strictEqual(toDisplayName(`${"x".repeat(99)}👍`).isWellFormed(), true)
})

it("a project that was given a name can be read: its specification takes every name that a request may have", () => {
  const stored = Schema.decodeUnknownResult(ProjectSpec)
  const spec = (name: string) => ({ name, runtimeClass: "always-on" })
  for (const name of ["a", "x".repeat(100), "😀".repeat(60), "😀".repeat(100)]) {
    assert.isTrue(Result.isSuccess(decode(name)), name)
    assert.isTrue(Result.isSuccess(stored(spec(name))), name)
  }
  // Requests may not have these any more.
  for (const name of [" a", "a\nb"]) assert.isTrue(Result.isSuccess(stored(spec(name))))
  for (const name of ["", "😀".repeat(101)]) assert.isTrue(Result.isFailure(stored(spec(name))))
})
