import { randomBytes } from "node:crypto"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import { localPlace, PlaceError } from "#src/backups/repository/Place.ts"

const folder = Effect.acquireRelease(
  Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))),
  (dir) => Effect.sync(() => fs.rmSync(dir, { recursive: true, force: true }))
)
const files = (dir: string) =>
  fs.readdirSync(dir, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile())
const bytesOf = (content: Stream.Stream<Uint8Array, PlaceError>) =>
  Effect.map(Stream.runCollect(content), (chunks) => Buffer.concat(chunks))

describe("the repository on this machine", () => {
  it.live(
    "gives back, lists by prefix and removes; what is not there is not found, and removing it is no fault",
    () =>
      Effect.scoped(
        Effect.gen(function* () {
          const dir = yield* folder
          const place = localPlace(dir)
          const content = randomBytes(3_500_000)
          const put = place.put("a/wal/1", Stream.make(content.subarray(0, 10), content.subarray(10)))
          assert.deepStrictEqual(yield* put, { bytes: content.length })
          yield* place.put("a/wal/2", Stream.empty)
          yield* place.put("ab/wal/1", Stream.make(Buffer.from("x")))
          assert.isTrue((yield* bytesOf(place.get("a/wal/1"))).equals(content))
          assert.strictEqual((yield* bytesOf(place.get("a/wal/2"))).length, 0)
          const keys = (prefix: string) =>
            Effect.map(Stream.runCollect(place.list(prefix)), (all) =>
              all.map(({ key, bytes }) => `${key} ${bytes}`)
            )
          assert.deepStrictEqual(yield* keys("a/"), ["a/wal/1 3500000", "a/wal/2 0"])
          assert.deepStrictEqual(yield* keys("a"), ["a/wal/1 3500000", "a/wal/2 0", "ab/wal/1 1"])
          assert.deepStrictEqual(yield* keys("a/wal/2"), ["a/wal/2 0"])
          assert.deepStrictEqual(yield* keys("zz"), [])
          yield* place.remove(["a/wal/1", "a/wal/2", "nothing"])
          assert.deepStrictEqual(yield* keys(""), ["ab/wal/1 1"])
          assert.deepStrictEqual(fs.readdirSync(dir), ["ab"])
          const missing = yield* Effect.flip(bytesOf(place.get("a/wal/1")))
          assert.strictEqual(missing.reason, "not_found")
          assert.strictEqual(fs.statSync(path.join(dir, "ab/wal/1")).mode & 0o077, 0)
        })
      )
  )

  it.live("what was not written to its end is not there, and nothing is left of it", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const dir = yield* folder
        const place = localPlace(dir)
        const broken = Stream.concat(
          Stream.make(randomBytes(1_000_000)),
          Stream.fail(new PlaceError({ reason: "read", message: "the source is gone" }))
        )
        assert.strictEqual((yield* Effect.flip(place.put("a/1", broken))).message, "the source is gone")
        assert.deepStrictEqual(files(dir), [])
        const endless = Stream.forever(Stream.make(randomBytes(10_000)))
        yield* Effect.timeoutOption(place.put("a/2", endless), "100 millis")
        assert.deepStrictEqual(files(dir), [])
        assert.deepStrictEqual(yield* Stream.runCollect(place.list("")), [])
        // A later one of the same name replaces it, and a failed one leaves the earlier as it was.
        yield* place.put("a/1", Stream.make(Buffer.from("first")))
        yield* Effect.flip(place.put("a/1", broken))
        assert.strictEqual((yield* bytesOf(place.get("a/1"))).toString(), "first")
      })
    )
  )
})
