/** What containers print, as the dashboard draws it. */
import { assert, it } from "@effect/vitest"
import { piecesOf } from "../../web/src/panels/ansi.ts"

it("colours become looks, and no control sequence is shown", () => {
  const shown = (line: string) => piecesOf(line).map(({ text, look }) => `${look}|${text}`)
  assert.deepStrictEqual(shown("a \x1b[1;31mred\x1b[22m thin\x1b[0m b"), [
    "|a ",
    "text-bad font-semibold|red",
    "text-bad| thin",
    "| b"
  ])
  const all = piecesOf("\x1b]0;title\x07x\x1b[2J\x1b[Hy\x00\x08z\x1b(Bq")
  assert.strictEqual(all.map(({ text }) => text).join(""), "xyzBq")
})
