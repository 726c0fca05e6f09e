/**
 * An archive of source, made anew from one that somebody sent (tar, POSIX.1-2001 pax): files, folders and links that stay
 * inside, of one owner, with plain rights and no times. Anything else is refused, so that what is unpacked later means what
 * it says. What the plan of a build needs is read on the way.
 */
import { createHash } from "node:crypto"
import * as fs from "node:fs"
import * as path from "node:path"
import { type Readable, Transform } from "node:stream"
import { pipeline } from "node:stream/promises"
import * as Schema from "effect/Schema"
import { extract, type Headers, pack } from "tar-stream"
import { makeFacts, type SourceFacts } from "./facts.ts"

/** Who source and what is built of it belong to in containers. */
export const buildUser = 1000

export interface ArchiveBounds {
  /** Of the archive as it is sent. */
  readonly bytes: number
  readonly entries: number
}

export class ArchiveRefused extends Schema.TaggedError<ArchiveRefused>()("ArchiveRefused", {
  code: Schema.Literals([
    "archive_malformed",
    "archive_entry_refused",
    "archive_too_large",
    "digest_mismatch"
  ]),
  message: Schema.String
}) {}

export interface Repacked {
  /** Of what was read. */
  readonly bytes: number
  readonly entries: number
  /** SHA-256 of what was read and of what was written, in hexadecimal. */
  readonly sent: string
  readonly digest: string
  readonly facts: SourceFacts
}

const longestName = 1024

/** Reads the archive and writes the new one into the file. Rejects with `ArchiveRefused`, or with what the disk said. */
export const repack = async (
  source: Readable,
  file: string,
  bounds: ArchiveBounds,
  signal: AbortSignal
): Promise<Repacked> => {
  const hash = createHash("sha256")
  const written = createHash("sha256")
  let received = 0
  const measured = new Transform({
    transform(chunk: Buffer, _, done) {
      received += chunk.length
      hash.update(chunk)
      if (received > bounds.bytes)
        done(refusal("archive_too_large", `The source has more than ${bounds.bytes} bytes`))
      else done(null, chunk)
    }
  })
  const counted = new Transform({
    transform(chunk: Buffer, _, done) {
      written.update(chunk)
      done(null, chunk)
    }
  })
  const reader = extract()
  const writer = pack()
  const kinds = new Map<string, "file" | "folder" | "link">()
  const facts = makeFacts()
  let entries = 0

  writer.entry({ ...plain, name: "./", type: "directory", mode: 0o755 })
  reader.on("entry", (header, content, next) => {
    const take = async () => {
      entries += 1
      if (entries > bounds.entries)
        throw refusal("archive_too_large", `The source has more than ${bounds.entries} files and folders`)
      const { name, entry } = admitted(header, kinds)
      if (name === "") return void content.resume()
      facts.note(name)
      if (entry.type !== "file") {
        writer.entry(entry)
        return void content.resume()
      }
      const interest = facts.interest(name, header.size ?? 0)
      const chunks: Array<Buffer> = []
      const lock = createHash("sha256")
      const sink = writer.entry(entry)
      const kept = new Transform({
        transform(chunk: Buffer, _, done) {
          if (interest === "text") chunks.push(chunk)
          if (interest === "lock") lock.update(chunk)
          done(null, chunk)
        }
      })
      await pipeline(content, kept, sink, { signal })
      if (interest === "text") facts.text(name, Buffer.concat(chunks))
      if (interest === "lock") facts.lock(name, lock.digest("hex"))
    }
    take().then(
      () => next(),
      (error: unknown) => reader.destroy(error instanceof Error ? error : new Error(String(error)))
    )
  })
  reader.once("finish", () => writer.finalize())
  reader.once("error", (error) => writer.destroy(error))

  try {
    await Promise.all([
      // What comes after the end of the archive is no part of it, but of what the digest is of.
      pipeline(source, measured, reader, { signal }),
      pipeline(writer, counted, fs.createWriteStream(file, { mode: 0o600, flags: "wx" }), { signal })
    ])
  } catch (error) {
    if (error instanceof ArchiveRefused || signal.aborted) throw error
    if (error instanceof Error && /tar header|Unexpected end of data|Size mismatch/i.test(error.message))
      throw refusal("archive_malformed", "What was sent is no tar archive, or a part of one")
    throw error
  }
  return {
    bytes: received,
    entries,
    sent: hash.digest("hex"),
    digest: written.digest("hex"),
    facts: facts.facts()
  }
}

const refusal = (code: ArchiveRefused["code"], message: string) => new ArchiveRefused({ code, message })

const plain = { uid: buildUser, gid: buildUser, uname: "", gname: "", mtime: new Date(0) }

/** The entry as it is written anew. An empty name: the folder itself. */
const admitted = (
  header: Headers,
  kinds: Map<string, "file" | "folder" | "link">
): { readonly name: string; readonly entry: Headers } => {
  const shown = JSON.stringify(header.name.slice(0, 200))
  const refused = (why: string) => refusal("archive_entry_refused", `The entry ${shown} ${why}`)
  if (header.name.length > longestName) throw refused("has too long a name")
  if (header.name.startsWith("/")) throw refused("is an absolute path")
  if (header.name.includes("\0")) throw refused("has no name that a file can have")
  const parts = header.name.split("/").filter((part) => part !== "" && part !== ".")
  if (parts.includes("..")) throw refused("leads out of the folder")
  const name = parts.join("/")
  const type = header.type ?? "file"
  const kind =
    type === "file" || type === "contiguous-file"
      ? "file"
      : type === "directory"
        ? "folder"
        : type === "symlink"
          ? "link"
          : undefined
  if (kind === undefined) throw refused(`is a ${type}; only files, folders and symbolic links are taken`)
  if (name === "" && kind !== "folder") throw refused("has no name")
  // Each folder on the way is one: nothing is put through a link.
  for (let depth = 1; depth < parts.length; depth++) {
    const above = parts.slice(0, depth).join("/")
    if ((kinds.get(above) ?? "folder") !== "folder") throw refused(`lies below ${above}, which is no folder`)
    kinds.set(above, "folder")
  }
  const before = kinds.get(name)
  if (before !== undefined && !(before === "folder" && kind === "folder")) throw refused("is there twice")
  if (name !== "") kinds.set(name, kind)
  if (kind === "folder")
    return { name, entry: { ...plain, name: `${name}/`, type: "directory", mode: 0o755 } }
  if (kind === "link") {
    const target = header.linkname ?? ""
    if (!staysInside(target, parts.length - 1)) throw refused("links to what is outside of the folder")
    return { name, entry: { ...plain, name, type: "symlink", linkname: target, mode: 0o777, size: 0 } }
  }
  // Whatever a file says of sticky bits and other owners is left out.
  const mode = ((header.mode ?? 0) & 0o111) === 0 ? 0o644 : 0o755
  return { name, entry: { ...plain, name, type: "file", mode, size: header.size ?? 0 } }
}

/** Steps up are at the beginning only: after the name of a link they would count from somewhere else. */
const staysInside = (target: string, depth: number): boolean => {
  if (target === "" || target.length > longestName || target.includes("\0") || path.posix.isAbsolute(target))
    return false
  const parts = target.split("/").filter((part) => part !== "" && part !== ".")
  const up = parts.findIndex((part) => part !== "..")
  const ups = up === -1 ? parts.length : up
  return ups <= depth && !parts.slice(ups).includes("..")
}
