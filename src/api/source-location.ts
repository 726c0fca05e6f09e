/** Where the parts of a document stand, and what a fault in one looks like. */
import * as Result from "effect/Result"

/** Keys and indexes from the root on. */
export type Path = ReadonlyArray<string | number>

/** Lines and columns count from 1. */
export interface Position {
  readonly line?: number
  readonly column?: number
}

/** Where things stand in a source text. Nothing is known of a value that came without one. */
export type Locate = (path: Path) => Position

export interface PathFault {
  readonly path: Path
  readonly message: string
}

export interface ManifestFault extends Position {
  readonly pointer: string
  readonly message: string
}

/** JSON Pointer (RFC 6901). */
export const toPointer = (path: Path): string =>
  path.map((part) => `/${String(part).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("")

/** The parts of a JSON Pointer. Whether one is a key or an index is for what it points into to say. */
export const toPath = (pointer: string): Path =>
  pointer
    .split("/")
    .slice(1)
    .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"))

/** Faults that are listed; more are counted. */
export const mostFaults = 100

/** The first faults, with their places, and how many more there are. */
export const listed = (
  faults: ReadonlyArray<PathFault>,
  locate: Locate,
  all = faults.length
): ReadonlyArray<ManifestFault> => {
  const shown = faults
    .slice(0, mostFaults)
    .map(({ path, message }): ManifestFault => ({ pointer: toPointer(path), message, ...locate(path) }))
  const more = all - shown.length
  return more > 0 ? [...shown, { pointer: "", message: `has ${more} more faults` }] : shown
}

/** One fault, which is reason enough to read no further. */
export const refused = (message: string, position: Position = {}, path: Path = []) =>
  Result.fail([{ pointer: toPointer(path), message, ...position }])

export interface Read {
  readonly value: unknown
  readonly locate: Locate
}
export type ReadResult = Result.Result<Read, ReadonlyArray<ManifestFault>>
