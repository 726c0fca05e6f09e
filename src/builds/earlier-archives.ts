/**
 * Archives that an organization has sent before, as they came: what a new one has in common with them is copied from there
 * and not sent again. They are kept for that alone, and go whenever their room is needed.
 */

import { createReadStream, createWriteStream } from "node:fs"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { pipeline } from "node:stream/promises"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { mostPieces, Piece, shortestCopy } from "./piece.ts"
import { piecesOf } from "./pieces.ts"

/** Of an organization, the newest. */
export const mostEarlier = 10
export const earlierForMs = 7 * 86_400_000

/** What is kept of an archive: itself, and its pieces. */
export const sentEnding = ".sent"
export const piecesEnding = ".pieces"
export const isEarlier = (name: string) => name.endsWith(sentEnding) || name.endsWith(piecesEnding)

const Copy = Schema.Struct({
  /** Where in the new archive. */
  at: Schema.Int,
  bytes: Schema.Int,
  /** Digest of the earlier archive, and where in it. */
  from: Schema.String,
  offset: Schema.Int
})
type Copy = typeof Copy.Type
const decodeCopies = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Array(Copy)))
const decodePieces = Schema.decodeUnknownOption(
  Schema.fromJsonString(Schema.Array(Piece).check(Schema.isMaxLength(mostPieces)))
)

/** What is still to come of an archive. */
export interface Wanted {
  readonly missing: number
  /** Where the stretch that is to be sent next ends. */
  readonly until: number
}

/** `stem`: path of an archive's files without their ending. */
const copiesOf = async (stem: string): Promise<ReadonlyArray<Copy>> => {
  const text = await fs.readFile(`${stem}.copies`, "utf8").catch(() => "[]")
  return Option.getOrElse(decodeCopies(text), () => [])
}

/** Finds the pieces of a new archive in earlier ones, and notes what is to be copied. */
export const compare = async (stem: string, pieces: ReadonlyArray<Piece>): Promise<void> => {
  const folder = path.dirname(stem)
  const known = new Map<string, { readonly from: string; readonly offset: number }>()
  const names = new Set(await fs.readdir(folder).catch(() => []))
  for (const name of names) {
    const from = name.slice(0, -piecesEnding.length)
    if (!name.endsWith(piecesEnding) || !names.has(`${from}${sentEnding}`)) continue
    const text = await fs.readFile(path.join(folder, name), "utf8").catch(() => "[]")
    let offset = 0
    for (const { bytes, sha256 } of Option.getOrElse(decodePieces(text), () => [])) {
      known.set(keyOf({ bytes, sha256 }), { from, offset })
      offset += bytes
    }
  }
  const copies: Array<Copy> = []
  let stretch: Array<Copy> = []
  let at = 0
  const end = () => {
    if (stretch.reduce((sum, { bytes }) => sum + bytes, 0) >= shortestCopy) copies.push(...stretch)
    stretch = []
  }
  for (const piece of pieces) {
    const found = known.get(keyOf(piece))
    const last = stretch.at(-1)
    if (found === undefined) end()
    else if (last !== undefined && last.from === found.from && last.offset + last.bytes === found.offset)
      stretch[stretch.length - 1] = { ...last, bytes: last.bytes + piece.bytes }
    else stretch.push({ at, bytes: piece.bytes, ...found })
    at += piece.bytes
  }
  end()
  if (copies.length > 0) await writeWhole(`${stem}.copies`, JSON.stringify(copies))
}

const keyOf = ({ bytes, sha256 }: Piece) => `${sha256} ${bytes}`

/**
 * Copies what the file has next, as long as that is in earlier archives. One that is not there any more is as if it never
 * was; what it should have been shows in the digest of the whole.
 */
export const fill = async (stem: string, file: string, signal: AbortSignal): Promise<void> => {
  const copies = new Map((await copiesOf(stem)).map((copy) => [copy.at, copy]))
  for (;;) {
    const length = await fs.stat(file).then(
      ({ size }) => size,
      () => 0
    )
    const next = copies.get(length)
    if (next === undefined) return
    copies.delete(length)
    const sent = path.join(path.dirname(stem), `${next.from}${sentEnding}`)
    const { size } = await fs.stat(sent).catch(() => ({ size: 0 }))
    if (size < next.offset + next.bytes) return
    await (await fs.open(file, "a", 0o600)).close()
    await pipeline(
      createReadStream(sent, { start: next.offset, end: next.offset + next.bytes - 1 }),
      createWriteStream(file, { flags: "r+", start: length }),
      { signal }
    )
  }
}

/** Of an archive of `size` bytes, of which so many are here. */
export const wantedOf = async (stem: string, received: number, size: number): Promise<Wanted> => {
  const later = (await copiesOf(stem)).filter(({ at }) => at > received)
  return {
    missing: later.reduce((rest, { bytes }) => rest - bytes, size - received),
    until: later.reduce((until, { at }) => Math.min(until, at), size)
  }
}

/** Keeps an archive that has come as a whole for those that come after it. */
export const keepEarlier = async (stem: string, file: string, signal: AbortSignal): Promise<void> => {
  const pieces = await piecesOf(file, signal)
  await fs.rm(`${stem}.copies`, { force: true })
  if (pieces === undefined) return
  await fs.rename(file, `${stem}${sentEnding}`)
  await writeWhole(`${stem}${piecesEnding}`, JSON.stringify(pieces))
}

/** What was put together of them is not what it should be. */
export const forgetSources = async (stem: string): Promise<void> => {
  for (const from of new Set((await copiesOf(stem)).map((copy) => copy.from)))
    for (const ending of [piecesEnding, sentEnding])
      await fs.rm(path.join(path.dirname(stem), `${from}${ending}`), { force: true })
  await fs.rm(`${stem}.copies`, { force: true })
}

const writeWhole = async (file: string, text: string) => {
  const draft = `${file}.part`
  await fs.writeFile(draft, text, { mode: 0o600 })
  await fs.rename(draft, file)
}
