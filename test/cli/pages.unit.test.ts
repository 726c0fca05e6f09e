import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { itemsOf } from "#src/cli/pages.ts"

/** A list of so many numbers, read in pages; notes how many were asked for. */
const listOf = (length: number) => {
  const asked: Array<number> = []
  const read = ({ limit, cursor = "0" }: { readonly limit: number; readonly cursor?: string }) =>
    Effect.sync(() => {
      asked.push(limit)
      const start = Number(cursor)
      const end = Math.min(start + limit, length)
      const items = Array.from({ length: end - start }, (_, i) => start + i)
      return { items, nextCursor: end < length ? String(end) : null }
    })
  return { asked, read }
}
const numbers = (count: number) => Array.from({ length: count }, (_, i) => i)

it.effect("a list is read to its last page, or until there are as many items as were asked for", () =>
  Effect.gen(function* () {
    for (const [length, most, pages] of [
      [0, undefined, [100]],
      [250, undefined, [100, 100, 100]],
      [250, 120, [100, 20]],
      [250, 100, [100]],
      [30, 120, [100]]
    ] as const) {
      const { asked, read } = listOf(length)
      assert.deepStrictEqual(yield* itemsOf(read, most), numbers(Math.min(length, most ?? length)))
      assert.deepStrictEqual(asked, [...pages])
    }
  })
)
