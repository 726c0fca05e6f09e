import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Result from "effect/Result"
import { costOf, parseUpstreams, upstreamsOf } from "#src/ai-gateways/runtime/upstreams-file.ts"

const one = {
  name: "provider",
  dialect: "openai",
  address: "https://api.example.com/v1",
  model: "small",
  key: "sk-very-secret",
  prices: { input: 0.25, output: 2, cachedInput: 0.025 }
}
const lines = (value: unknown) => JSON.stringify(value, undefined, 2)
const faults = (text: string) =>
  Result.match(parseUpstreams(text), { onFailure: (all) => all, onSuccess: () => assert.fail("it is right") })

it("a list is complete with its defaults, and shows no key", () => {
  const parsed = Result.getOrThrow(parseUpstreams(lines({ "svc/fast": [one] })))
  assert.deepStrictEqual([...parsed.keys()], ["svc/fast"])
  const [first] = parsed.get("svc/fast") ?? []
  assert.deepInclude(first?.limits, { outputTokens: 4_096, idleSeconds: 60, totalSeconds: 900 })
  assert.strictEqual(first?.maxTokensField, "max_tokens")
  assert.strictEqual(Redacted.value(first!.key), "sk-very-secret")
  assert.notInclude(JSON.stringify(parsed.get("svc/fast")) + String(first), "very-secret")
})

it("each fault is told with its line, and no value with it", () => {
  const wrong = {
    "svc/fast": [{ ...one, address: "ftp://sk-very-secret" }, one],
    "svc/other": [one],
    "svc/balanced": [{ ...one, prices: { input: -1, output: 2 }, extra: "sk-very-secret" }]
  }
  const text = lines(wrong)
  const told = faults(text)
  assert.notInclude(told.join(), "very-secret")
  const lineOf = (part: string) => text.split("\n").findIndex((line) => line.includes(part)) + 1
  const has = (line: number, ...parts: ReadonlyArray<string>) =>
    assert.isTrue(
      told.some((fault) => fault.startsWith(`line ${line}:`) && parts.every((part) => fault.includes(part))),
      `${line} ${parts.join()}: ${told.join("; ")}`
    )
  has(lineOf("ftp:"), "address", "must be a URL")
  has(lineOf("svc/other"), "svc/other", "no field")
  has(lineOf('"input": -1'), "input")
  has(lineOf("extra"), "extra", "no field")
})

it("what is no JSON, stands twice or is named twice is refused", () => {
  assert.deepStrictEqual(faults("{"), ["is not valid JSON"])
  assert.include(faults('{"svc/fast": [],\n "svc/fast": []}').join(), "line 2")
  assert.include(faults(lines({ "svc/fast": [one, one] })).join(), "different names")
  assert.isNotEmpty(faults(lines({ "svc/fast": [] })))
})

it.effect("the setting is the list itself, or names a file", () =>
  Effect.gen(function* () {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "svc-upstreams-"))
    const file = path.join(folder, "upstreams.json")
    const read = (value: string) =>
      upstreamsOf("SVC_AI_UPSTREAMS").parse(ConfigProvider.fromEnv({ env: { SVC_AI_UPSTREAMS: value } }))
    try {
      fs.writeFileSync(file, lines({ "svc/fast": [one] }))
      assert.strictEqual((yield* read(file)).size, 1)
      assert.strictEqual((yield* read(` ${lines({ "svc/fast": [one] })}`)).size, 1)
      fs.writeFileSync(file, lines({ "svc/fast": [{ ...one, dialect: "other" }] }))
      const said = String(yield* Effect.flip(read(file)))
      for (const part of [file, "line 5", "dialect", "anthropic"]) assert.include(said, part)
      assert.include(String(yield* Effect.flip(read(`${file}.none`))), "cannot be read")
    } finally {
      fs.rmSync(folder, { recursive: true })
    }
  })
)

it("costs are whole billionths of a dollar, rounded up, with what was cached at its own price", () => {
  assert.strictEqual(costOf(one, { input: 1_000_000, cachedInput: 0, output: 0 }), 250_000_000)
  assert.strictEqual(costOf(one, { input: 10, cachedInput: 4, output: 3 }), 6 * 250 + 4 * 25 + 3 * 2_000)
  assert.strictEqual(
    costOf({ prices: { input: 0.0001, output: 0 } }, { input: 1, cachedInput: 0, output: 0 }),
    1
  )
  assert.strictEqual(
    costOf({ prices: { input: 1, output: 0 } }, { input: 2, cachedInput: 2, output: 0 }),
    2_000
  )
})
