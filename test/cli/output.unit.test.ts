/** What reaches a terminal of text that others wrote. */
import { assert, describe, it, vi } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { fromProblem } from "#src/cli/failure.ts"
import { Invocation } from "#src/cli/invocation.ts"
import { facts, json, out, paint, say, sayText, table } from "#src/cli/output.ts"
import { visible, visibleJson, visibleLine } from "#src/cli/visible.ts"
import { onTerminal } from "#src/executions/follow-command.ts"
import { renderPlan } from "#src/manifest/plan-text.ts"
import { recorded } from "./svc.ts"

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

const terminal = { TERM: "xterm", NO_COLOR: "" }
/** Text as a command shows it. */
const shown = (text: string, env: Record<string, string> = terminal, isTTY = true) => {
  const { invocation, stderr } = recorded({ cwd: "/", env, isTTY })
  Effect.runSync(Effect.provideService(sayText(text), Invocation, invocation))
  return stderr().replace(/\n$/, "")
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
    for (const text of [
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
      assert.notMatch(text, steering)
      assert.include(text, "\\u001b[2J")
      assert.include(text, "\\u202e")
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
    assert.strictEqual(shown(paint("red", "no \u001b[8mhidden")), "\u001b[31mno \\u001b[8mhidden\u001b[39m")
    const lines = table(
      ["STATE", "NAME"],
      [
        [paint("green", "on"), "a"],
        ["off", "b"]
      ]
    )
    const [, first, second] = shown(lines).split("\n")
    assert.strictEqual(first, "\u001b[32mon\u001b[39m     a")
    assert.strictEqual(second, "off    b")
    for (const env of [{ NO_COLOR: "1" }, { CI: "true" }, { TERM: "dumb" }])
      assert.strictEqual(shown(paint("red", "plain"), { ...terminal, ...env }), "plain")
    assert.strictEqual(shown(paint("red", "plain"), terminal, false), "plain")
    assert.strictEqual(shown(lines, terminal, false).split("\n")[1], "on     a")
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
      shown(renderPlan({ ...plan, changes: [kept("a"), kept("b")] }), terminal, false),
      `  shop/production/Cache/a
  shop/production/Cache/b
2 not in the manifest, kept (use --prune to delete)
Nothing to change.`
    )
    const changes = Array.from({ length: 30 }, (_, i) => kept(`c${i}`))
    const many = shown(renderPlan({ ...plan, changes }), terminal, false)
    assert.include(many, "  and 10 more\n30 not in the manifest, kept")
  })
})
