/**
 * A part of a base backup: files of a data folder, one after the other, as they are read. Records of `kind (1 byte),
 * length (4 bytes), content`: a file begins with its path and an offset, and goes on with data until the next one.
 * Nothing needs to be known of a file before it is read, because files of a running server grow and go meanwhile.
 */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import type { BackupFiles } from "#src/infra/postgres/backup.ts"

/** Bytes of one file that belong to a part. */
export interface Piece {
  readonly path: string
  readonly offset: number
  readonly bytes: number
}
export interface Part {
  readonly folders: ReadonlyArray<string>
  readonly pieces: ReadonlyArray<Piece>
}

/** Large enough for a bucket to be happy, small enough that sending one again costs little. */
const usualPart = 256 << 20
const readSize = 1 << 20
const kinds = { end: 0, folder: 1, file: 2, data: 3 } as const

/** What goes into which part. Large files are divided; the folders, and the order, are the first part's and kept. */
export const partsOf = ({ folders, files }: BackupFiles, size = usualPart): ReadonlyArray<Part> => {
  const parts: Array<{ folders: ReadonlyArray<string>; pieces: Array<Piece> }> = [{ folders, pieces: [] }]
  let room = size
  for (const file of files) {
    let offset = 0
    do {
      if (room <= 0) {
        parts.push({ folders: [], pieces: [] })
        room = size
      }
      const bytes = Math.min(file.bytes - offset, room)
      parts.at(-1)?.pieces.push({ path: file.path, offset, bytes })
      // A small file costs something as well.
      room -= Math.max(bytes, 4_096)
      offset += bytes
    } while (offset < file.bytes)
  }
  return parts
}

const record = (kind: number, content: Uint8Array): Uint8Array => {
  const head = Buffer.alloc(5)
  head.writeUInt8(kind, 0)
  head.writeUInt32BE(content.length, 1)
  return content.length === 0 ? head : Buffer.concat([head, content])
}

/** The part's bytes, each chunk until the next but one is asked for. `onRead` is told how many bytes of files passed. */
export async function* pack(
  dataDir: string,
  part: Part,
  onRead: (bytes: number) => void
): AsyncGenerator<Uint8Array> {
  // Two for all, in turn: to allocate one for each file and block costs more than to read them.
  const largest = part.pieces.reduce((most, { bytes }) => Math.max(most, bytes), 0)
  const make = () => Buffer.allocUnsafeSlow(Math.min(readSize, largest) + 5)
  let [buffer, other] = [make(), make()]
  for (const folder of part.folders) yield record(kinds.folder, Buffer.from(folder))
  for (const piece of part.pieces) {
    const handle = await fs.open(path.join(dataDir, piece.path), "r").catch(unlessGone)
    // A file that is gone was dropped, which the log tells of as well.
    if (handle === undefined) continue
    try {
      yield record(kinds.file, Buffer.from(JSON.stringify([piece.path, piece.offset])))
      let at = piece.offset
      const end = piece.offset + piece.bytes
      while (at < end) {
        const { bytesRead } = await handle.read(buffer, 5, Math.min(readSize, end - at), at)
        // It was cut: what is missing is in the log.
        if (bytesRead === 0) break
        buffer.writeUInt8(kinds.data, 0)
        buffer.writeUInt32BE(bytesRead, 1)
        yield buffer.subarray(0, 5 + bytesRead)
        ;[buffer, other] = [other, buffer]
        at += bytesRead
        onRead(bytesRead)
      }
    } finally {
      await handle.close()
    }
  }
  yield record(kinds.end, Buffer.alloc(0))
}

const unlessGone = (error: NodeJS.ErrnoException): undefined => {
  if (error.code !== "ENOENT") throw error
}

/** Puts the files of a part where they belong in a folder. Done twice it comes to the same. */
export const unpack = async (
  content: AsyncIterable<Uint8Array>,
  into: string,
  onWritten: (bytes: number) => void
): Promise<void> => {
  let file: { readonly handle: fs.FileHandle; at: number } | undefined
  let ended = false
  try {
    for await (const { kind, body } of records(content)) {
      if (ended) throw new Error("a part of a backup goes on after its end")
      if (kind === kinds.folder)
        await fs.mkdir(within(into, body.toString()), { recursive: true, mode: 0o700 })
      else if (kind === kinds.file) {
        await file?.handle.close()
        file = undefined
        const [name, offset] = pieceOf(body)
        const target = within(into, name)
        await fs.mkdir(path.dirname(target), { recursive: true, mode: 0o700 })
        file = {
          handle: await fs.open(target, fs.constants.O_RDWR | fs.constants.O_CREAT, 0o600),
          at: offset
        }
      } else if (kind === kinds.data && file !== undefined) {
        for (let done = 0; done < body.length; ) {
          const { bytesWritten } = await file.handle.write(body, done, body.length - done, file.at)
          done += bytesWritten
          file.at += bytesWritten
        }
        onWritten(body.length)
      } else if (kind === kinds.end) ended = true
      else throw new Error("a part of a backup cannot be read")
    }
    if (!ended) throw new Error("a part of a backup has no end")
  } finally {
    await file?.handle.close()
  }
}

async function* records(content: AsyncIterable<Uint8Array>) {
  let held: Buffer = Buffer.alloc(0)
  for await (const chunk of content) {
    held = held.length === 0 ? Buffer.from(chunk) : Buffer.concat([held, chunk])
    while (held.length >= 5) {
      const end = 5 + held.readUInt32BE(1)
      if (end > 5 + (readSize << 1)) throw new Error("a part of a backup cannot be read")
      if (held.length < end) break
      yield { kind: held.readUInt8(0), body: held.subarray(5, end) }
      held = held.subarray(end)
    }
  }
  if (held.length > 0) throw new Error("a part of a backup is cut off")
}

const pieceOf = (body: Buffer): readonly [string, number] => {
  const value: unknown = JSON.parse(body.toString())
  if (!Array.isArray(value)) throw new Error("a part of a backup cannot be read")
  const [name, offset]: ReadonlyArray<unknown> = value
  if (typeof name !== "string" || typeof offset !== "number") {
    throw new Error("a part of a backup cannot be read")
  }
  return [name, offset]
}

/** Our own parts name nothing else; whoever got hold of the key should still not write elsewhere. */
const within = (folder: string, name: string): string => {
  const target = path.resolve(folder, name)
  if (!target.startsWith(`${path.resolve(folder)}${path.sep}`)) {
    throw new Error("a part of a backup names a file outside of its folder")
  }
  return target
}
