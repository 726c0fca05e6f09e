/** Copying as COPY does it: what of an archive is meant, under which names, and of which owner. */
import * as fs from "node:fs"
import * as path from "node:path"
import { pipeline } from "node:stream/promises"
import ignore from "ignore"
import { extract, type Headers, pack } from "tar-stream"

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

const segmentPattern = (segment: string) =>
  new RegExp(
    `^${segment
      .replace(/[.+^${}()|[\]\\]/g, "\\$&")
      .replaceAll("*", "[^/]*")
      .replaceAll("?", "[^/]")}$`
  )

/** The part of the path that the source means; undefined: none. */
const matched = (source: string, name: string): string | undefined => {
  if (source === "." || source === "") return ""
  const wanted = source.split("/").map(segmentPattern)
  const parts = name.split("/")
  return parts.length >= wanted.length && wanted.every((one, index) => one.test(parts[index] ?? ""))
    ? parts.slice(0, wanted.length).join("/")
    : undefined
}

/** Path in the container, without a slash at the beginning; undefined: it is not meant. Empty: the target itself. */
export const placeOf = (
  { sources, target, isFolder }: Pick<Copying, "sources" | "target" | "isFolder">,
  name: string,
  isDirectory: boolean
): string | undefined => {
  const base = target.replace(/^\/+|\/+$/g, "")
  for (const source of sources) {
    const whole = matched(source, name)
    if (whole === undefined) continue
    const place =
      whole === name
        ? isDirectory
          ? ""
          : isFolder
            ? path.posix.join(base, path.posix.basename(name))
            : base
        : path.posix.join(base, whole === "" ? name : name.slice(whole.length + 1))
    return place
  }
  return undefined
}

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
  const rules = ignore().add(copying.ignored)
  let count = 0
  reader.on("entry", (header, content, next) => {
    const take = async () => {
      const name = nameOf(header.name.replace(/^(\.\/)+|\/+$/g, ""))
      const isDirectory = header.type === "directory"
      if (name === undefined || name === "" || name === "." || rules.ignores(isDirectory ? `${name}/` : name))
        return void content.resume()
      const place = placeOf(copying, name, isDirectory)
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
        // Others than folders and symbolic links mean something at their old place only.
        if (isDirectory || type === "symlink") writer.entry(entry)
        return void content.resume()
      }
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
