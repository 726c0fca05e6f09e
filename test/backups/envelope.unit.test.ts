import { randomBytes } from "node:crypto"
import { assert, describe, it } from "@effect/vitest"
import {
  counting,
  decode,
  encode,
  frameSize,
  NotAuthentic,
  type ObjectName
} from "#src/backups/repository/envelope.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { until } from "#test/setup/wait.ts"

const key = randomBytes(32)
const object: ObjectName = { lineage: "l1", name: "wal/000000010000000000000001" }

async function* pieces(bytes: Uint8Array, size: number) {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}
const collect = async (content: AsyncIterable<Uint8Array>) => {
  const chunks: Array<Uint8Array> = []
  for await (const chunk of content) chunks.push(chunk)
  return Buffer.concat(chunks)
}
/** What is written, as it is read again. */
async function* flat(content: AsyncIterable<ReadonlyArray<Uint8Array>>) {
  for await (const chunks of content) yield* chunks
}
const sealed = (content: Uint8Array, piece = 50_000) =>
  collect(flat(encode(key, object, pieces(content, piece))))
const refused = async (stored: Uint8Array, as: ObjectName = object, withKey: Uint8Array = key) => {
  const outcome = await collect(decode(withKey, as, pieces(stored, 10_000))).then(
    () => "opened",
    (error: unknown) => (error instanceof NotAuthentic ? "refused" : `failed otherwise: ${error}`)
  )
  assert.strictEqual(outcome, "refused")
}

/** Where the frames begin, from the lengths that they say. */
const frames = (stored: Buffer): ReadonlyArray<Buffer> => {
  const found: Array<Buffer> = []
  for (let at = 40; at < stored.length; ) {
    const end = at + 4 + (stored.readUInt32BE(at) & 0x7fff_ffff) + 16
    found.push(stored.subarray(at, end))
    at = end
  }
  return found
}

const random = new Seeded(1)

describe("the envelope of an object", () => {
  it("is done with a chunk when the next but one is asked for, so that two buffers are enough", async () => {
    const content = randomBytes(3_000_000)
    async function* inTurn() {
      const buffers = [Buffer.alloc(100_000), Buffer.alloc(100_000)] as const
      for (let at = 0, turn = 0; at < content.length; at += 100_000, turn = 1 - turn) {
        const buffer = buffers[turn === 0 ? 0 : 1]
        content.copy(buffer, 0, at)
        yield buffer
      }
    }
    const stored = await collect(flat(encode(key, object, inTurn())))
    assert.isTrue((await collect(decode(key, object, pieces(stored, 10_000)))).equals(content))
  })

  it("gives back what was put in, whatever its size and the pieces it comes in", async () => {
    for (const size of [0, 1, 100, frameSize - 1, frameSize, frameSize + 1, 3 * frameSize, 1_234_567]) {
      for (const content of [randomBytes(size), Buffer.alloc(size, 7)]) {
        for (const piece of [1 << 20, 4_099]) {
          const stored = await sealed(content, piece)
          const back = await collect(decode(key, object, pieces(stored, piece)))
          assert.isTrue(back.equals(content), `${size} bytes in pieces of ${piece}`)
        }
      }
    }
  })

  it("counts both sides alike when it is written and when it is read", async () => {
    const content = randomBytes(400_000)
    const [plain, stored, plainBack, storedBack] = [counting(), counting(), counting(), counting()]
    const bytes = await collect(flat(encode(key, object, pieces(content, 9_999), { plain, stored })))
    await collect(decode(key, object, pieces(bytes, 5_555), { plain: plainBack, stored: storedBack }))
    const written = stored.tally()
    assert.strictEqual(written.bytes, bytes.length)
    assert.deepStrictEqual(plainBack.tally(), plain.tally())
    assert.deepStrictEqual(storedBack.tally(), written)
  })

  it("two objects of the same content have nothing in common", async () => {
    const content = Buffer.alloc(100_000, 1)
    const [one, other] = [await sealed(content), await sealed(content)]
    assert.isFalse(one.subarray(40).equals(other.subarray(40)))
    assert.isFalse(one.includes(content.subarray(0, 32)))
  })

  it("a bit that is changed anywhere is noticed", async () => {
    const stored = await sealed(randomBytes(3 * frameSize))
    const heads = [0, 8, 39, 40, 43, 44, stored.length - 1, stored.length - 17]
    const places = [...heads, ...Array.from({ length: 60 }, () => random.int(0, stored.length - 1))]
    for (const at of places) {
      const copy = Buffer.from(stored)
      copy[at] = (copy[at] ?? 0) ^ (1 << random.int(0, 7))
      await refused(copy)
    }
  })

  it("an object that is cut off anywhere, also between two frames, is noticed", async () => {
    const stored = await sealed(randomBytes(3 * frameSize))
    const parts = frames(stored)
    assert.isAbove(parts.length, 3)
    let end = 40
    for (const part of parts) {
      await refused(stored.subarray(0, end))
      await refused(stored.subarray(0, end + 3))
      end += part.length
    }
    for (let i = 0; i < 30; i++) await refused(stored.subarray(0, random.int(0, stored.length - 2)))
  })

  it("frames that are swapped, repeated, left out or added are noticed", async () => {
    const stored = await sealed(randomBytes(4 * frameSize))
    const parts = frames(stored)
    const made = (order: ReadonlyArray<number>) =>
      Buffer.concat([stored.subarray(0, 40), ...order.map((index) => parts[index] ?? Buffer.alloc(0))])
    const all = parts.map((_, index) => index)
    assert.isTrue(made(all).equals(stored))
    await refused(made([1, 0, ...all.slice(2)]))
    await refused(made([0, 0, ...all.slice(1)]))
    await refused(made(all.slice(1)))
    await refused(made([0, ...all.slice(2)]))
    await refused(made([...all, all.length - 1]))
    await refused(Buffer.concat([stored, Buffer.from([0])]))
  })

  it("an object under another name, of another lineage, or opened with another key is refused", async () => {
    const stored = await sealed(randomBytes(10_000))
    await refused(stored, { ...object, name: "wal/000000010000000000000002" })
    await refused(stored, { ...object, lineage: "l2" })
    await refused(stored, object, randomBytes(32))
    // A frame of another object of the same lineage.
    const other = await sealed(randomBytes(10_000))
    await refused(Buffer.concat([stored.subarray(0, 40), other.subarray(40)]))
  })

  it("a source that fails fails the object, in both directions", async () => {
    async function* failing() {
      yield randomBytes(1000)
      throw new Error("the disk is gone")
    }
    for (const run of [flat(encode(key, object, failing())), decode(key, object, failing())]) {
      const message = await collect(run).then(
        () => "went on",
        (error: unknown) => String(error)
      )
      assert.match(message, /the disk is gone|does not open/)
    }
  })

  it("whoever stops reading leaves nothing open", async () => {
    let closed = false
    async function* endless() {
      try {
        for (;;) yield randomBytes(100_000)
      } finally {
        closed = true
      }
    }
    let taken = 0
    for await (const chunk of flat(encode(key, object, endless()))) {
      taken += chunk.length
      if (taken > 2_000_000) break
    }
    await until("the source is closed", () => closed)
  })
})
