/** What reaches a terminal of text that others wrote. */
import { assert, describe, it, vi } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { onTerminal } from "#src/cli/execution-follow.ts"
import { fromProblem } from "#src/cli/failure.ts"
import { facts, json, out, paint, renderPlan, say, shownText, table } from "#src/cli/output.ts"
import { visible, visibleJson, visibleLine } from "#src/cli/visible.ts"

const commands = "\u001b[2J\u001b]0;owned\u0007"
const bidi = "\u202egnp.exe\u2066\u200f"
const hostile = `a${commands}b\rc\u009b31md${bidi}\ne`
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not be there.
const steering = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/

/** What is written to a stream meanwhile. */
const written = (stream: NodeJS.WriteStream, effect: Effect.Effect<void>) => {
  let text = ""
  const spy = vi.spyOn(stream, "write").mockImplementation((chunk) => {
    text += String(chunk)
    return true
  })
  try {
    Effect.runSync(effect)
  } finally {
    spy.mockRestore()
  }
  return text
}

const plan: Parameters<typeof renderPlan>[0] = {
  planId: "p",
  organization: "main",
  baseRevision: "0",
  createdAt: "",
  expiresAt: "",
  summary: { create: 0, update: 0, replace: 0, delete: 0, noop: 0, drift: 0 },
  changes: [],
  drift: [],
  blockers: [],
  warnings: []
}

describe("text of others", () => {
  it("is shown with escapes for what would steer a terminal, on one line where it is one", () => {
    assert.strictEqual(
      visibleLine("a\u001b[2J\u0007\rb\u009bc\u202ed\ne\tf ä 漢"),
      "a\\u001b[2J\\u0007\\rb\\u009bc\\u202ed\\ne\\tf ä 漢"
    )
    assert.strictEqual(visible("two\nlines\tand a tab"), "two\nlines\tand a tab")
    for (const shown of [
      table(["NAME"], [[hostile], ["other"]]),
      facts([["Name", hostile]]),
      fromProblem({
        type: "x",
        title: hostile,
        status: 422,
        detail: hostile,
        code: "invalid",
        requestId: "r",
        errors: [{ pointer: hostile, message: hostile }],
        addresses: [hostile]
      }).message,
      renderPlan({
        ...plan,
        warnings: [{ pointer: "/x", message: hostile }],
        blockers: [{ pointer: "/x", code: "x", message: hostile }]
      }),
      written(process.stdout, out(hostile)),
      written(process.stderr, say(hostile, "next"))
    ]) {
      assert.notMatch(shown, steering)
      assert.include(shown, "\\u001b[2J")
      assert.include(shown, "\\u202e")
    }
    assert.strictEqual(table(["NAME"], [[hostile], ["other"]]).split("\n").length, 3)
    assert.strictEqual(written(process.stderr, say("one\nline", "two")), "one\\nline\ntwo\n")
  })

  it("is the same JSON for programs, without a character that a terminal obeys", () => {
    const text = written(process.stdout, json({ name: hostile }))
    assert.deepStrictEqual(JSON.parse(text), { name: hostile })
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not be there.
    assert.notMatch(text, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/)
    assert.strictEqual(visibleJson('"\u009b"'), '"\\u009b"')
  })

  it("that a command printed is stripped of colours and movements on a terminal", () => {
    assert.strictEqual(
      onTerminal("\u001b[31mred\u001b[0m\r\nover\rwritten\u0007\n"),
      "red\nover\\rwritten\\u0007\n"
    )
  })
})

describe("colours", () => {
  it("are where people read, only from the program, and take no room in a table", () => {
    const terminal = (yes: boolean) => {
      for (const stream of [process.stdout, process.stderr])
        Object.defineProperty(stream, "isTTY", { value: yes, configurable: true })
    }
    const before = process.stdout.isTTY
    for (const name of ["CI", "NO_COLOR"]) vi.stubEnv(name, undefined)
    vi.stubEnv("TERM", "xterm")
    try {
      terminal(true)
      assert.strictEqual(
        shownText(paint("red", "no \u001b[8mhidden")),
        "\u001b[31mno \\u001b[8mhidden\u001b[39m"
      )
      const [, first, second] = shownText(
        table(
          ["STATE", "NAME"],
          [
            [paint("green", "on"), "a"],
            ["off", "b"]
          ]
        )
      ).split("\n")
      assert.strictEqual(first, "\u001b[32mon\u001b[39m     a")
      assert.strictEqual(second, "off    b")
      terminal(false)
      assert.strictEqual(shownText(paint("red", "plain")), "plain")
    } finally {
      terminal(before)
      vi.unstubAllEnvs()
    }
  })
})

describe("a plan for people", () => {
  it("counts what it keeps apart from what it deletes, and names the flag", () => {
    const kept = (name: string) => ({
      address: `shop/production/Cache/${name}`,
      kind: "Cache",
      project: "shop",
      environment: "production",
      name,
      action: "noop" as const,
      risk: "read" as const,
      patch: [],
      reasons: [
        { code: "not_in_manifest", message: "x" },
        { code: "needs_prune", message: "x" }
      ],
      requires: { role: "member" as const, billing: false }
    })
    assert.strictEqual(
      renderPlan({ ...plan, changes: [kept("a"), kept("b")] }),
      `  shop/production/Cache/a
  shop/production/Cache/b
2 not in the manifest, kept (use --prune to delete)
Nothing to change.`
    )
    const many = renderPlan({ ...plan, changes: Array.from({ length: 30 }, (_, i) => kept(`c${i}`)) })
    assert.include(many, "  and 10 more\n30 not in the manifest, kept")
  })
})
