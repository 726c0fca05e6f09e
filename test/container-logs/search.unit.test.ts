import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { LogReader, LogRecord } from "#src/container-logs/log-store.ts"
import { searched } from "#src/container-logs/search.ts"
import { uuid } from "#test/setup/fixtures.ts"

/** A log of these texts, and how many of its pieces were read. */
const logOf = (texts: ReadonlyArray<string | Buffer>) => {
  let position = 0
  const pieces = texts.map((text): LogRecord => {
    const content = Buffer.from(text)
    const piece = { position: String(position), stream: "stdout", at: new Date(0), content } as const
    position += content.length
    return piece
  })
  let taken = 0
  const read: LogReader = (_, from, limit) =>
    Effect.sync(() => {
      const found = pieces.filter((piece) => Number(piece.position) >= Number(from)).slice(0, limit)
      taken += found.length
      return { pieces: found, ended: true }
    })
  return { read, taken: () => taken }
}
const ref = { orgId: uuid(), uid: uuid() }

/** Every answer until the last one. */
const pages = Effect.fnUntraced(function* (read: LogReader, limit: number, search: string) {
  const all: Array<ReadonlyArray<string>> = []
  for (let from: string | undefined = "0"; from !== undefined; ) {
    const page: Effect.Success<ReturnType<typeof searched>> = yield* searched(read, ref, from, limit, search)
    all.push(page.items.map(({ text }) => text))
    from = page.next
  }
  return all
})

describe("a search in a log", () => {
  it.effect("finds every entry that holds the text, in any case of letters and as it is", () =>
    Effect.gen(function* () {
      const { read } = logOf(["GET /\n", "Get /ÄRGER\n", "post\n", "100%_\n", "100xx\n"])
      const find = (search: string) => Effect.map(pages(read, 100, search), (all) => all.flat())
      assert.deepStrictEqual(yield* find("get"), ["GET /\n", "Get /ÄRGER\n"])
      assert.deepStrictEqual(yield* find("ärger"), ["Get /ÄRGER\n"])
      assert.deepStrictEqual(yield* find("0%_"), ["100%_\n"])
      assert.deepStrictEqual(yield* find(".*"), [])
    })
  )

  it.effect("finds letters whose bytes came apart, and passes over bytes that are none", () =>
    Effect.gen(function* () {
      const bytes = Buffer.from("x€y")
      const { read } = logOf([bytes.subarray(0, 2), bytes.subarray(2), Buffer.from([0xff, 0x00]), "end"])
      assert.deepStrictEqual(yield* pages(read, 100, "€Y"), [["€y"]])
      assert.deepStrictEqual(yield* pages(read, 100, "END"), [["end"]])
    })
  )

  it.effect("goes on where a page ends, and finds none twice", () =>
    Effect.gen(function* () {
      const texts = Array.from({ length: 1_200 }, (_, at) => `${at % 3 === 0 ? "Hit" : "miss"} ${at}\n`)
      const { read } = logOf(texts)
      const all = yield* pages(read, 7, "hit")
      assert.isTrue(all.every((page) => page.length <= 7))
      assert.deepStrictEqual(
        all.flat(),
        texts.filter((text) => text.startsWith("Hit"))
      )
    })
  )

  it.effect("looks through so much at most for one answer, and says where to go on", () =>
    Effect.gen(function* () {
      const short = logOf([...Array.from({ length: 25_000 }, () => "no\n"), "yes\n"])
      const first = yield* searched(short.read, ref, "0", 10, "yes")
      assert.deepStrictEqual([first.items, first.next], [[], "30000"])
      assert.isAtMost(short.taken(), 10_100)
      assert.deepStrictEqual(yield* pages(short.read, 10, "yes"), [[], [], ["yes\n"]])

      const long = logOf([...Array.from({ length: 600 }, () => "n".repeat(60_000)), "yes\n"])
      const begun = yield* searched(long.read, ref, "0", 10, "yes")
      assert.deepStrictEqual([begun.items, begun.next], [[], String(500 * 60_000)])
      assert.deepStrictEqual((yield* pages(long.read, 10, "yes")).flat(), ["yes\n"])
    })
  )
})
