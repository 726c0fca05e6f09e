import { assert, it } from "@effect/vitest"
import { eventSplitter } from "#src/ai-gateways/runtime/events.ts"

const bytes = (text: string) => new TextEncoder().encode(text)

/** All events of a text that comes in pieces of so many bytes. */
const split = (text: string, size: number) => {
  const take = eventSplitter()
  const all = bytes(text)
  const events: Array<string> = []
  for (let at = 0; at < all.length; at += size)
    events.push(...(take(all.subarray(at, at + size)) ?? assert.fail()))
  return events
}

it("events are the same wherever the pieces end", () => {
  const lines = [
    ": a comment",
    "event: named",
    "data: one",
    "",
    "data:two",
    "id: 7",
    "data:  three",
    "",
    "",
    "",
    "data: ä€😀",
    "",
    "data",
    "",
    "data: never ended"
  ]
  const expected = ["one", "two\n three", "ä€😀"]
  for (const end of ["\n", "\r\n", "\r"]) {
    const text = lines.join(end)
    for (const size of [1, 2, 3, 5, 7, 1_000])
      assert.deepStrictEqual(split(text, size), expected, `${JSON.stringify(end)} ${size}`)
  }
  const mixed = "data: a\r\n\ndata: b\n\r\ndata: c\r\r"
  for (const size of [1, 2, 100]) assert.deepStrictEqual(split(mixed, size), ["a", "b", "c"])
})

it("an event that does not end is given up, be it one line or many", () => {
  const bounded = () => eventSplitter(100)
  const one = bounded()
  assert.deepStrictEqual(one(bytes(`data: ${"x".repeat(80)}`)), [])
  assert.isUndefined(one(bytes("x".repeat(80))))
  const many = bounded()
  let given = false
  for (let line = 0; line < 20 && !given; line++) given = many(bytes("data: 0123456789\n")) === undefined
  assert.isTrue(given)
  // What comes in one piece is no exception.
  assert.isUndefined(bounded()(bytes(`data: ${"x".repeat(200)}\n`)))
})
