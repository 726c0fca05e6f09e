/**
 * An archive as pieces, each from the header of an entry to the next one: a file that stays as it is, where it is, stays the
 * same piece. Whoever sends an archive and whoever keeps it cut it alike.
 */
import { createHash, type Hash } from "node:crypto"
import * as fs from "node:fs"
import { mostPieces, type Piece } from "./piece.ts"

const block = 512
/** What marks a block as a header, and where in it (tar, POSIX.1-1990). */
const mark = Buffer.from("ustar")
const markAt = 257

/** Undefined: there are too many. */
export const piecesOf = async (
  file: string,
  signal: AbortSignal
): Promise<ReadonlyArray<Piece> | undefined> => {
  const pieces: Array<Piece> = []
  let [hash, bytes]: [Hash, number] = [createHash("sha256"), 0]
  const cut = () => {
    if (bytes > 0) pieces.push({ bytes, sha256: hash.digest("hex") })
    hash = createHash("sha256")
    bytes = 0
  }
  const add = (some: Buffer) => {
    hash.update(some)
    bytes += some.length
  }
  let rest: Buffer = Buffer.alloc(0)
  for await (const chunk of fs.createReadStream(file, { signal, highWaterMark: 256 * 1024 })) {
    const blocks = rest.length === 0 ? chunk : Buffer.concat([rest, chunk])
    const end = blocks.length - (blocks.length % block)
    let from = 0
    for (let at = 0; at < end; at += block) {
      if (!blocks.subarray(at + markAt, at + markAt + mark.length).equals(mark)) continue
      add(blocks.subarray(from, at))
      cut()
      from = at
      if (pieces.length > mostPieces) return undefined
    }
    add(blocks.subarray(from, end))
    rest = blocks.subarray(end)
  }
  add(rest)
  cut()
  return pieces.length > mostPieces ? undefined : pieces
}
