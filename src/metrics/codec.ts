/**
 * Points of one resource, packed into bytes: a table with a row for each moment and a column for each measurement.
 *
 * Measurements change little from row to row and have few decimals. A column is stored as differences of whole thousandths,
 * whose bytes are sorted by their significance (as HDF5's shuffle filter does), and the whole is deflated (RFC 1951).
 * Nothing is rounded: a column with a number that this cannot hold is stored as it is.
 */
import * as zlib from "node:zlib"
import * as Schema from "effect/Schema"

export interface Table {
  /** Milliseconds since 1970, rising. */
  readonly times: ReadonlyArray<number>
  /** By name; undefined where there is no number. Each is as long as `times`. */
  readonly columns: ReadonlyMap<string, ReadonlyArray<number | undefined>>
}

/** The first byte. */
const version = 1
const bytesOfNumber = 8
/** More is no table of ours. */
const mostBytes = 64 * 1024 * 1024

const Header = Schema.fromJsonString(
  Schema.Struct({
    rows: Schema.Int,
    /** Names, and whether the numbers are differences of thousandths. */
    columns: Schema.Array(Schema.Tuple([Schema.String, Schema.Boolean]))
  })
)
const decodeHeader = Schema.decodeUnknownSync(Header)

export const encode = ({ times, columns }: Table): Uint8Array => {
  const all: ReadonlyArray<readonly [string, ReadonlyArray<number | undefined>]> = [["", times], ...columns]
  const stored = all.map(([name, column]) => ({ name, exact: column.every(fits), column }))
  const header = Buffer.from(
    JSON.stringify({ rows: times.length, columns: stored.map(({ name, exact }) => [name, exact]) })
  )
  const body = stored.map(({ column, exact }) => shuffled(exact ? differences(column) : column))
  const length = Buffer.alloc(4)
  length.writeUInt32LE(header.length)
  return Buffer.concat([Buffer.of(version), zlib.deflateRawSync(Buffer.concat([length, header, ...body]))])
}

/** Undefined: the bytes are none that `encode` made. */
export const decode = (bytes: Uint8Array): Table | undefined => {
  try {
    return decodeUnsafe(bytes)
  } catch {
    return undefined
  }
}

const decodeUnsafe = (bytes: Uint8Array): Table => {
  if (bytes[0] !== version) throw new Error(`Points of version ${bytes[0]} cannot be read`)
  const plain = zlib.inflateRawSync(bytes.subarray(1), { maxOutputLength: mostBytes })
  const bodyAt = 4 + plain.readUInt32LE(0)
  const { rows, columns } = decodeHeader(plain.toString("utf8", 4, bodyAt))
  const decoded = columns.map(([name, exact], index): [string, ReadonlyArray<number | undefined>] => {
    const numbers = unshuffled(plain, bodyAt + index * rows * bytesOfNumber, rows)
    return [name, exact ? sums(numbers) : numbers.map((value) => (Number.isNaN(value) ? undefined : value))]
  })
  const [times, ...rest] = decoded
  return { times: (times?.[1] ?? []).map((time) => time ?? 0), columns: new Map(rest) }
}

/** Differences of two such numbers are exact. */
const fits = (value: number | undefined): boolean =>
  value === undefined || (Math.abs(value) < 2 ** 42 && Math.round(value * 1_000) / 1_000 === value)

const differences = (column: ReadonlyArray<number | undefined>): ReadonlyArray<number | undefined> => {
  let last = 0
  return column.map((value) => {
    if (value === undefined) return undefined
    const thousandths = Math.round(value * 1_000)
    const difference = thousandths - last
    last = thousandths
    return difference
  })
}

const sums = (numbers: ReadonlyArray<number>): ReadonlyArray<number | undefined> => {
  let last = 0
  return numbers.map((difference) => {
    if (Number.isNaN(difference)) return undefined
    last += difference
    return last / 1_000
  })
}

const shuffled = (column: ReadonlyArray<number | undefined>): Buffer => {
  const rows = column.length
  const plain = Buffer.alloc(rows * bytesOfNumber)
  for (const [row, value] of column.entries()) plain.writeDoubleBE(value ?? Number.NaN, row * bytesOfNumber)
  const sorted = Buffer.alloc(plain.length)
  for (let row = 0; row < rows; row++) {
    for (let byte = 0; byte < bytesOfNumber; byte++) {
      sorted[byte * rows + row] = plain[row * bytesOfNumber + byte] ?? 0
    }
  }
  return sorted
}

const unshuffled = (bytes: Buffer, from: number, rows: number): ReadonlyArray<number> => {
  const plain = Buffer.alloc(rows * bytesOfNumber)
  for (let row = 0; row < rows; row++) {
    for (let byte = 0; byte < bytesOfNumber; byte++) {
      plain[row * bytesOfNumber + byte] = bytes[from + byte * rows + row] ?? 0
    }
  }
  return Array.from({ length: rows }, (_, row) => plain.readDoubleBE(row * bytesOfNumber))
}
