/**
 * How an object of a repository is written: compressed, then sealed in frames, so that neither needs more memory than
 * a frame, however large the object is.
 *
 * `magic, salt (32 bytes)`, then frames: `length with the mark of the last (4 bytes), ciphertext, tag (16 bytes)`.
 * Every object has a key of its own, derived from that of the lineage (HKDF, RFC 5869) by the salt, so frame numbers
 * can be nonces. A frame is bound to the lineage, the object's name, its own number and whether it is the last: what is
 * altered, left out, put in another order, cut off or moved under another name does not open. (The construction is
 * that of "Online Authenticated-Encryption and its Nonce-Reuse Misuse-Resistance", Hoang et al. 2015.)
 */
import { createCipheriv, createDecipheriv, createHash, hkdfSync, randomBytes } from "node:crypto"
import { Readable } from "node:stream"
import { constants, createZstdCompress, createZstdDecompress } from "node:zlib"
import * as Arr from "effect/Array"

const magic = Buffer.from("svcb1\n\0\0", "latin1")
const saltLength = 32
const tagLength = 16
/** Of compressed bytes in a frame. */
export const frameSize = 128 * 1024
const lastFrame = 0x8000_0000

/** To be written one after the other. */
type Pieces = Arr.NonEmptyReadonlyArray<Uint8Array>

/** Where an object belongs. */
export interface ObjectName {
  readonly lineage: string
  readonly name: string
}

/** Bytes and their digest, counted as they pass. */
export interface Tally {
  readonly bytes: number
  readonly sha256: string
}
export interface Counting {
  readonly count: (chunk: Uint8Array) => void
  readonly tally: () => Tally
}
export const counting = (): Counting => {
  const hash = createHash("sha256")
  let bytes = 0
  return {
    count: (chunk) => {
      bytes += chunk.length
      hash.update(chunk)
    },
    tally: () => ({ bytes, sha256: hash.digest("hex") })
  }
}

/** What is not what it should be: it was altered, cut off, or belongs elsewhere. */
export class NotAuthentic extends Error {
  override readonly name = "NotAuthentic"
}

const keyOf = (lineageKey: Uint8Array, salt: Uint8Array, { lineage, name }: ObjectName) =>
  Buffer.from(hkdfSync("sha256", lineageKey, salt, JSON.stringify(["svc backup", lineage, name]), 32))

const nonceOf = (frame: number) => {
  const nonce = Buffer.alloc(12)
  nonce.writeBigUInt64BE(BigInt(frame), 4)
  return nonce
}
const boundTo = ({ lineage, name }: ObjectName, frame: number, head: Uint8Array) =>
  Buffer.concat([Buffer.from(JSON.stringify([lineage, name, frame])), head])

const headOf = (length: number, last: boolean) => {
  const head = Buffer.alloc(4)
  head.writeUInt32BE(last ? (length | lastFrame) >>> 0 : length)
  return head
}

/** Zstandard's fastest level: a backup should cost the databases beside it little. */
const level = { chunkSize: 1 << 18, params: { [constants.ZSTD_c_compressionLevel]: 1 } }

/** Seals; `plain` sees what comes in, `stored` what goes out: pieces that are ready at the same time, in one array. */
export async function* encode(
  lineageKey: Uint8Array,
  object: ObjectName,
  content: AsyncIterable<Uint8Array>,
  tallies: { readonly plain?: Counting; readonly stored?: Counting } = {}
): AsyncGenerator<Pieces> {
  const salt = randomBytes(saltLength)
  const key = keyOf(lineageKey, salt, object)
  let number = 0
  /** Compressed bytes are not joined to be sealed: what is allocated here is paid for once more when it is collected. */
  const frame = (parts: ReadonlyArray<Buffer>, length: number, last: boolean): Pieces => {
    const head = headOf(length, last)
    const cipher = createCipheriv("aes-256-gcm", key, nonceOf(number)).setAAD(boundTo(object, number, head))
    const sealed: Pieces = [
      head,
      ...parts.map((part) => cipher.update(part)),
      cipher.final(),
      cipher.getAuthTag()
    ]
    number++
    for (const piece of sealed) tallies.stored?.count(piece)
    return sealed
  }

  const head = Buffer.concat([magic, salt])
  tallies.stored?.count(head)
  yield [head]
  // One frame is held back, because only the end tells which is the last.
  let held: Array<Buffer> = []
  let length = 0
  for await (const chunks of compressed(content, tallies.plain)) {
    const ready: Array<Uint8Array> = []
    for (let chunk of chunks) {
      while (length + chunk.length > frameSize) {
        const room = frameSize - length
        ready.push(...frame([...held, chunk.subarray(0, room)], frameSize, false))
        chunk = chunk.subarray(room)
        held = []
        length = 0
      }
      held.push(chunk)
      length += chunk.length
    }
    if (Arr.isArrayNonEmpty(ready)) yield ready
  }
  yield frame(held, length, true)
}

/** Opens. Nothing is given out that was not authenticated; whether it was all is known at the end. */
export async function* decode(
  lineageKey: Uint8Array,
  object: ObjectName,
  content: AsyncIterable<Uint8Array>,
  tallies: { readonly plain?: Counting; readonly stored?: Counting } = {}
): AsyncGenerator<Uint8Array> {
  try {
    for await (const chunk of decompressed(opened(lineageKey, object, content, tallies.stored))) {
      tallies.plain?.count(chunk)
      yield chunk
    }
  } catch (error) {
    // Compressed data that was authenticated and cannot be read ends in the same words.
    if (error instanceof Error && "code" in error && String(error.code).startsWith("ZSTD_")) {
      throw new NotAuthentic(`${object.name} cannot be decompressed`)
    }
    throw error
  }
}

async function* opened(
  lineageKey: Uint8Array,
  object: ObjectName,
  content: AsyncIterable<Uint8Array>,
  stored: Counting | undefined
): AsyncGenerator<Buffer> {
  let held: Buffer = Buffer.alloc(0)
  let key: Buffer | undefined
  let number = 0
  let ended = false
  for await (const chunk of content) {
    stored?.count(chunk)
    held = held.length === 0 ? Buffer.from(chunk) : Buffer.concat([held, chunk])
    if (key === undefined) {
      if (held.length < magic.length + saltLength) continue
      if (!held.subarray(0, magic.length).equals(magic)) throw altered(object)
      key = keyOf(lineageKey, held.subarray(magic.length, magic.length + saltLength), object)
      held = held.subarray(magic.length + saltLength)
    }
    while (held.length >= 4) {
      const marked = held.readUInt32BE(0)
      const last = (marked & lastFrame) !== 0
      const length = marked & ~lastFrame
      if (ended || length > frameSize) throw altered(object)
      const end = 4 + length + tagLength
      if (held.length < end) break
      const decipher = createDecipheriv("aes-256-gcm", key, nonceOf(number))
        .setAAD(boundTo(object, number, held.subarray(0, 4)))
        .setAuthTag(held.subarray(end - tagLength, end))
      const body = decipher.update(held.subarray(4, 4 + length))
      try {
        decipher.final()
      } catch {
        throw altered(object)
      }
      yield body
      held = held.subarray(end)
      number++
      ended = last
    }
  }
  if (!ended || held.length > 0) throw altered(object)
}

const altered = ({ name }: ObjectName) =>
  new NotAuthentic(`${name} does not open: it was altered, cut off, or belongs elsewhere`)

/**
 * One chunk is compressed while the next is read and counted, and what came before is sealed and written. A chunk is done
 * with before the next but one is asked for: whoever gives them may use two buffers in turn.
 */
async function* compressed(
  content: AsyncIterable<Uint8Array>,
  plain: Counting | undefined
): AsyncGenerator<ReadonlyArray<Buffer>> {
  const zstd = createZstdCompress(level)
  const made: Array<Buffer> = []
  zstd.on("data", (chunk: Buffer) => made.push(chunk))
  const ended = new Promise<void>((resolve, reject) => zstd.once("end", resolve).once("error", reject))
  // It may fail while nobody waits for it; then the next write fails as well.
  ended.catch(() => {})
  const written = (chunk: Uint8Array) =>
    new Promise<void>((resolve, reject) =>
      zstd.write(chunk, (error) => (error instanceof Error ? reject(error) : resolve()))
    )
  let before = Promise.resolve()
  try {
    for await (const chunk of content) {
      plain?.count(chunk)
      await before
      before = written(chunk)
      before.catch(() => {})
      yield made.splice(0)
    }
    await before
    zstd.end()
    await ended
    yield made.splice(0)
  } finally {
    zstd.destroy()
  }
}
const decompressed = (content: AsyncIterable<Uint8Array>) => through(content, createZstdDecompress())

/** Errors of the source come out of the end, and leaving the end early closes the source. */
const through = (
  content: AsyncIterable<Uint8Array>,
  transform: ReturnType<typeof createZstdDecompress>
): AsyncIterable<Buffer> => {
  const source = Readable.from(content, { objectMode: false, highWaterMark: 1 << 20 })
  source.once("error", (error) => transform.destroy(error))
  transform.once("close", () => source.destroy())
  return source.pipe(transform)
}
