/** A piece of an archive: bytes of it, from the header of an entry to the next one. */
import * as Schema from "effect/Schema"

export const Piece = Schema.Struct({
  bytes: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 2 ** 40 })),
  /** In hexadecimal. */
  sha256: Schema.String.check(
    Schema.isPattern(/^[0-9a-f]{64}$/, { expected: "a SHA-256 digest in hexadecimal" })
  )
})
export type Piece = typeof Piece.Type

/** An archive of more pieces is not compared. */
export const mostPieces = 40_000
/** Bytes: a stretch of pieces that is shorter is sent all the same, as what lies between two stretches takes a request. */
export const shortestCopy = 64 * 1024
