/** Copying as COPY does it: what of an archive is meant, under which names, and of which owner. */
import * as fs from "node:fs"
import * as path from "node:path"
import { pipeline } from "node:stream/promises"
import { setImmediate } from "node:timers/promises"
import { extract, type Headers, pack } from "tar-stream"
import { areFew, longestPatterns, makeBeginning, makeIgnores } from "./glob.ts"

export interface Copying {
  /** Paths and patterns (`*`, `?`), without a slash at the beginning; `.` is all. */
  readonly sources: ReadonlyArray<string>
  readonly target: string
  readonly isFolder: boolean
  readonly uid: number
  readonly gid: number
  /** Text of a `.dockerignore`. */
  readonly ignored: string
}

/**
 * Answers where a path goes in the container, without a slash at the beginning; undefined: it is not meant. Empty: the
 * target itself.
 */
export const makePlaceOf = ({
  sources,
  target,
  isFolder
}: Pick<Copying, "sources" | "target" | "isFolder">) => {
  const base = target.split("/").filter(Boolean).join("/")
  const beginnings = sources.map((source) =>
    source === "." || source === "" ? () => 0 : makeBeginning(source)
  )
  return (name: string, isDirectory: boolean): string | undefined => {
    for (const beginning of beginnings) {
      const count = beginning(name)
      if (count === undefined) continue
      const rest = name.split("/").slice(count)
      if (rest.length > 0) return path.posix.join(base, ...rest)
      if (isDirectory) return ""
      return isFolder ? path.posix.join(base, path.posix.basename(name)) : base
    }
    return undefined
  }
}

/** Something of it cannot be what it was at its new place. */
export class NotCopied extends Error {}

/**
 * Reads a tar file and writes another one. `nameOf` says how entries of the first one are called; undefined: they do not
 * count. Answers how many were meant.
 */
export const copyArchive = async (
  source: string,
  target: string,
  nameOf: (name: string) => string | undefined,
  copying: Copying,
  signal: AbortSignal
): Promise<number> => {
  const reader = extract()
  const writer = pack()
  if (copying.sources.join("").length > longestPatterns || !areFew(copying.ignored))
    throw new NotCopied("there are more patterns than are compared with each file")
  const placeOf = makePlaceOf(copying)
  const ignores = makeIgnores(copying.ignored)
  let count = 0
  /** Where the file went that a hard link is another name of. */
  const placeOfFirst = (linkname: string) => {
    const name = nameOf(linkname.replace(/^(\.\/)+|^\/+/g, ""))
    const place = name === undefined ? undefined : placeOf(name, false)
    if (place === undefined || place === "" || !written.has(place))
      throw new NotCopied(`a hard link to ${linkname.slice(0, 200)} is not copied without that file`)
    return place
  }
  const written = new Set<string>()
  reader.on("entry", (header, content, next) => {
    const take = async () => {
      const name = nameOf(header.name.replace(/^(\.\/)+|\/+$/g, ""))
      const isDirectory = header.type === "directory"
      // Many entries come in one piece: others have their turn between them, and so has the end of the time for this.
      await setImmediate(undefined, { signal })
      if (name === undefined || name === "" || name === "." || ignores(name)) return void content.resume()
      const place = placeOf(name, isDirectory)
      if (place === undefined) return void content.resume()
      count++
      if (place === "") return void content.resume()
      const { uid, gid } = copying
      const { linkname, mode = 0o644, size = 0, type } = header
      const common = { uid, gid, mtime: new Date(0), mode: mode & 0o777 }
      const entry: Headers = isDirectory
        ? { ...common, name: `${place}/`, type: "directory" }
        : { ...common, name: place, type: type ?? "file", size, ...(linkname == null ? {} : { linkname }) }
      if (type !== "file" && type !== "contiguous-file" && type != null) {
        if (isDirectory || type === "symlink") writer.entry(entry)
        else if (type === "link") writer.entry({ ...entry, linkname: placeOfFirst(linkname ?? "") })
        else throw new NotCopied(`${name} is a ${type}, which is not copied`)
        return void content.resume()
      }
      written.add(place)
      await pipeline(content, writer.entry({ ...entry, type: "file" }), { signal })
    }
    take().then(
      () => next(),
      (error: unknown) => reader.destroy(error instanceof Error ? error : new Error(String(error)))
    )
  })
  reader.once("finish", () => writer.finalize())
  reader.once("error", (error) => writer.destroy(error))
  await Promise.all([
    pipeline(fs.createReadStream(source), reader, { signal }),
    pipeline(writer, fs.createWriteStream(target, { mode: 0o600 }), { signal })
  ])
  return count
}
