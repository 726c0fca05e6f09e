import { assert, describe, it } from "@effect/vitest"
import * as Option from "effect/Option"
import * as fc from "fast-check"
import { parseLine as parse } from "#src/edge/requests/log-format.ts"

const environment = "019aa000-0000-7000-8000-000000000001"

const parseLine = (text: string) => Option.flatMap(parse(text), ({ request }) => request)

/** As HAProxy's converter `json(ascii)` writes bytes. */
const jsonAscii = (bytes: Uint8Array) =>
  Array.from(bytes, (byte) => {
    const character = String.fromCharCode(byte)
    if (`"\\/`.includes(character)) return `\\${character}`
    return byte < 32 || byte > 126 ? `\\u${byte.toString(16).padStart(4, "0")}` : character
  }).join("")

const line = (visitor: { host: Uint8Array; method: Uint8Array; path: Uint8Array }, rest: object = {}) => {
  const numbers = { status: 200, durationMs: 12, bytesIn: 345, bytesOut: 6789, end: "--", ...rest }
  return `{"source":"tls-7","number":3,"at":1795000000000,"environment":"${environment}","host":"${jsonAscii(visitor.host)}","method":"${jsonAscii(visitor.method)}","path":"${jsonAscii(visitor.path)}",${JSON.stringify(numbers).slice(1)}\n`
}
const bytes = (text: string) => new TextEncoder().encode(text)
const usual = { host: bytes("shop.example"), method: bytes("GET"), path: bytes("/cart") }

describe("a line of the proxy's log", () => {
  it("says what was asked and how it ended", () => {
    assert.deepStrictEqual(Option.getOrThrow(parseLine(line(usual))), {
      environment,
      host: "shop.example",
      method: "GET",
      path: "/cart",
      status: 200,
      durationMs: 12,
      bytesIn: 345,
      bytesOut: 6789,
      end: "--"
    })
  })

  it("has a number, also where it is of no environment", () => {
    const bad = line(usual, { status: 400, durationMs: 0 }).replace(environment, "-")
    const { request, ...numbered } = Option.getOrThrow(parse(bad))
    assert.deepStrictEqual(numbered, { source: "tls-7", number: 3, at: 1_795_000_000_000 })
    assert.isTrue(Option.isNone(request))
  })

  it("of a request that nobody answered has no status and no negative time", () => {
    const aborted = Option.getOrThrow(parseLine(line(usual, { status: -1, durationMs: -1, end: "CR" })))
    assert.deepInclude(aborted, { status: null, durationMs: 0, end: "CR" })
  })

  it("is read whatever bytes a visitor sends, and they change no other field", () => {
    const some = fc.oneof(
      fc.uint8Array({ maxLength: 200 }),
      fc.constantFrom(`","status":500,"x":"`, `\n{"environment":"`, "\u001b[2J", "\u202e").map(bytes)
    )
    fc.assert(
      fc.property(some, some, some, (host, method, path) => {
        const short = method.subarray(0, 32)
        const read = Option.getOrThrow(parseLine(line({ host, method: short, path })))
        assert.deepInclude(read, { environment, status: 200, durationMs: 12, bytesIn: 345, end: "--" })
        const shown = read.host + read.method + read.path
        // biome-ignore lint/suspicious/noControlCharactersInRegex: none of these may be left.
        assert.notMatch(shown, /[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/)
      })
    )
  })

  it("keeps text that is UTF-8 as it is", () => {
    assert.strictEqual(
      Option.getOrThrow(parseLine(line({ ...usual, path: bytes("/käse/日本") }))).path,
      "/käse/日本"
    )
  })

  it("that is none is no request", () => {
    fc.assert(fc.property(fc.string(), (text) => assert.isTrue(Option.isNone(parseLine(text)))))
    const none = [
      line(usual).replace(environment, "shop"),
      line(usual, { status: "200" }),
      line(usual, { bytesOut: -1 }),
      line(usual, { end: "\u001b[" }),
      line({ ...usual, path: new Uint8Array(1025).fill(65) }),
      line(usual).slice(0, -5)
    ]
    for (const text of none) assert.isTrue(Option.isNone(parseLine(text)), text)
  })
})
