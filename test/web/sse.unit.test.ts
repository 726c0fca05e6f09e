/** Server-sent events as the dashboard reads them. */
import { assert, it } from "@effect/vitest"
import { type Message, makeParser } from "../../web/src/live/sse.ts"

const text =
  'retry: 1000\n\n: here\n\nid: 7-1\nevent: change\ndata: {"a":\ndata: 1}\n\nid: 8-1\n\ndata\r\ndata: é\r\n\r\n'
const expected: ReadonlyArray<Message> = [
  { type: "comment", text: "here" },
  { type: "event", id: "7-1", data: '{"a":\n1}' },
  { type: "event", id: "8-1", data: "\né" }
]

it("are the same wherever the text is cut into pieces", () => {
  for (let at = 0; at <= text.length; at++) {
    const parse = makeParser()
    assert.deepStrictEqual([...parse(text.slice(0, at)), ...parse(text.slice(at))], expected, `cut at ${at}`)
  }
})

it("an event that is not finished is none", () => {
  assert.deepStrictEqual(makeParser()("id: 1\ndata: x\n"), [])
})
