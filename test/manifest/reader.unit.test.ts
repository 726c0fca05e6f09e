import { assert, describe, it, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { stringify } from "yaml"
import { syntaxFault } from "#src/api/json-syntax.ts"
import { Reader, shortSource } from "#src/manifest/Reader.ts"
import { locateAll, read, type Source } from "#src/manifest/reading.ts"

const manifest = (caches: number, extra: object = {}) => ({
  version: 1,
  organization: "main",
  projects: [
    {
      name: "P",
      slug: "project",
      runtimeClass: "always-on",
      caches: Array.from({ length: caches }, (_, i) => ({ name: `cache-${i}`, region: "local", ...extra }))
    }
  ]
})
const yaml = (value: unknown, inside?: string): Source => ({
  text: stringify(value),
  language: "yaml",
  inside
})
const json = (value: unknown, inside?: string): Source => ({
  text: JSON.stringify(value, null, 1),
  language: "json",
  inside
})

layer(Reader.layer, { excludeTestServices: true })("the reader of requests", (it) => {
  it.effect("answers the same from its thread as it would here: values, faults and places", () =>
    Effect.gen(function* () {
      const reader = yield* Reader
      const sources = [
        yaml(manifest(700)),
        json(manifest(700)),
        json({ manifest: manifest(700), prune: true }, "manifest"),
        yaml({ manifest: manifest(700, { sku: "cache-x1" }) }, "manifest"),
        yaml(manifest(700, { colour: "red" })),
        json({ manifest: "x".repeat(50_000) }, "manifest"),
        json({ planId: "x".repeat(50_000) }, "manifest"),
        { text: `${"x: &a [".repeat(4_000)}`, language: "yaml", inside: undefined },
        { text: JSON.stringify(manifest(700)).slice(0, -3), language: "json", inside: undefined }
      ] as const satisfies ReadonlyArray<Source>
      for (const source of sources) {
        assert.isAbove(source.text.length, shortSource)
        assert.deepStrictEqual(yield* reader.read(source), read(source))
      }
      const pointers = ["/projects/0/caches/600/name", "/organization", "/projects/0/caches/1", ""]
      for (const source of sources.slice(0, 3)) {
        const places = yield* reader.locate(source, pointers)
        assert.deepStrictEqual(places, locateAll(source, pointers))
        assert.strictEqual(new Set(places.map(({ line }) => line)).size, 4)
      }
    })
  )

  it.effect("others have their turns while a large text is read, and two at once are both read", () =>
    Effect.gen(function* () {
      const reader = yield* Reader
      let turns = 0
      let reading = true
      const turn = () => {
        turns += 1
        if (reading) setImmediate(turn)
      }
      setImmediate(turn)
      const source = yaml(manifest(2_000, { sku: "cache-n1" }))
      const answers = yield* Effect.all([reader.read(source), reader.read(source)], { concurrency: 2 })
      reading = false
      // Read here, it would have been a handful.
      assert.isAbove(turns, 100)
      for (const answer of answers) {
        if (answer._tag !== "Read") throw new Error(answer._tag)
        assert.strictEqual(answer.document?.projects?.[0]?.caches?.length, 2_000)
      }
    })
  )

  it.effect("goes on after a reading was given up", () =>
    Effect.gen(function* () {
      const reader = yield* Reader
      const given = yield* Effect.timeoutOption(reader.read(yaml(manifest(2_000))), "20 millis")
      assert.strictEqual(given._tag, "None")
      assert.strictEqual((yield* reader.read(yaml(manifest(1_000))))._tag, "Read")
    })
  )
})

describe("a text that is not JSON", () => {
  it("is refused where it stops being it, without being quoted", () => {
    const cases = [
      ['{"a": }', 6, "a value is expected"],
      ['{"a": 1,}', 8, "a key in double quotes is expected"],
      ["{a: 1}", 1, "a key in double quotes is expected"],
      ['{"a" 1}', 5, "a colon is expected"],
      ['{"a": 1 "b": 2}', 8, "a comma or a closing brace is expected"],
      ["[1, 2", 5, "the text ends where a comma or a closing bracket is expected"],
      ["[1, 2}", 5, "a comma or a closing bracket is expected"],
      ['{"a": "x', 8, "the text ends where the quote that ends the string is expected"],
      ['{"a": "x\ny"}', 8, "an escape such as \\n instead of a control character is expected"],
      ['{"a": "\\q"}', 7, "a known escape is expected"],
      ['{"a": 01}', 6, "a value is expected"],
      ["[tru]", 1, "a value is expected"],
      ["{} x", 3, "the end of the text is expected"],
      ["version: 1", 0, "a value is expected"],
      ["", 0, "the text ends where a value is expected"],
      ['{"a": \u00a01}', 6, "a value is expected"]
    ] as const
    for (const [text, offset, message] of cases) {
      assert.throws(() => JSON.parse(text))
      assert.deepStrictEqual(syntaxFault(text), { offset, message }, text)
    }
  })

  it("is what the runtime's parser refuses, and nothing else", () => {
    const good = JSON.stringify(
      { a: [1, -2.5e10, "x\n\u2028\ud800", null, true], b: { c: {}, d: [] } },
      null,
      1
    )
    assert.isUndefined(syntaxFault(good))
    const signs = ["", "{", "}", "[", "]", ",", ":", '"', "\\", "1", "-", ".", "e", "n", " ", "\n", "\u0000"]
    let refused = 0
    for (let at = 0; at <= good.length; at++) {
      for (const sign of signs) {
        for (const text of [
          good.slice(0, at) + sign + good.slice(at),
          good.slice(0, at) + sign + good.slice(at + 1)
        ]) {
          let parses = true
          try {
            JSON.parse(text)
          } catch {
            parses = false
            refused += 1
          }
          assert.strictEqual(syntaxFault(text) === undefined, parses, text)
        }
      }
    }
    assert.isAbove(refused, 500)
  })
})
