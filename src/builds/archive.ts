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
  /** Files and folders, with those that only paths of others tell of. */
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
/** Characters of all names: they are in memory until all is read. */
const longestNames = 16 * 1024 * 1024
const deepest = 64
/** Bytes before an entry, which the reader has in memory at once: pax records, long names. */
const longestHeader = 64 * 1024
const mostRecords = 256
const pieceBytes = 16 * 1024

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
  /** Up to where at most the entries that were read account for what was received. */
  let accounted = 0
  // In small pieces, so that the reader has seen all but the last one of what was received.
  const measured = async function* (chunks: AsyncIterable<Buffer>) {
    for await (const chunk of chunks) {
      hash.update(chunk)
      for (let at = 0; at < chunk.length; at += pieceBytes) {
        const piece = chunk.subarray(at, at + pieceBytes)
        received += piece.length
        if (received > bounds.bytes)
          throw refusal("archive_too_large", `The source has more than ${bounds.bytes} bytes`)
        if (received - accounted > longestHeader + pieceBytes)
          throw refusal("archive_entry_refused", `An entry has a header of more than ${longestHeader} bytes`)
        yield piece
      }
    }
  }
  const counted = new Transform({
    transform(chunk: Buffer, _, done) {
      written.update(chunk)
      done(null, chunk)
    }
  })
  const reader = extract()
  const writer = pack()
  const kinds = new Map<string, Kind>()
  const facts = makeFacts()
  let entries = 0
  let implied = 0
  let names = 0
  const keep = (name: string, kind: Kind) => {
    if (!kinds.has(name)) names += name.length
    kinds.set(name, kind)
    if (names > longestNames)
      throw refusal("archive_too_large", `The names in the source have more than ${longestNames} characters`)
  }
  const count = () => {
    if (entries + implied > bounds.entries)
      throw refusal("archive_too_large", `The source has more than ${bounds.entries} files and folders`)
  }

  writer.entry({ ...plain, name: "./", type: "directory", mode: 0o755 })
  reader.on("entry", (header, content, next) => {
    const take = async () => {
      accounted = received + (header.size ?? 0) + 512
      entries += 1
      count()
      const { name, above, kind, entry } = admitted(header, kinds)
      for (const folder of above) {
        if (kinds.has(folder)) continue
        implied += 1
        count()
        keep(folder, "folder")
      }
      if (name !== "") keep(name, kind)
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

type Kind = "file" | "folder" | "link"

interface Admitted {
  /** Empty: the folder itself. */
  readonly name: string
  /** Folders on the way to it. */
  readonly above: ReadonlyArray<string>
  readonly kind: Kind
  readonly entry: Headers
}

/** Records of pax headers come with the others. */
type SentHeaders = Headers & { readonly pax?: Readonly<Record<string, string>> | undefined }

/** The entry as it is written anew. */
const admitted = (header: SentHeaders, kinds: ReadonlyMap<string, Kind>): Admitted => {
  const shown = JSON.stringify(header.name.slice(0, 200))
  const refused = (why: string) => refusal("archive_entry_refused", `The entry ${shown} ${why}`)
  if (header.name.length > longestName) throw refused("has too long a name")
  if (header.name.startsWith("/")) throw refused("is an absolute path")
  if (header.name.includes("\0")) throw refused("has no name that a file can have")
  const { size } = header
  if (size != null && !(Number.isSafeInteger(size) && size >= 0))
    throw refused("has no size that a file can have")
  if (Object.keys(header.pax ?? {}).length > mostRecords) throw refused("has too many pax records")
  const parts = header.name.split("/").filter((part) => part !== "" && part !== ".")
  if (parts.includes("..")) throw refused("leads out of the folder")
  if (parts.length > deepest) throw refused(`lies more than ${deepest} folders deep`)
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
  const above = parts.slice(1).map((_, index) => parts.slice(0, index + 1).join("/"))
  for (const folder of above)
    if ((kinds.get(folder) ?? "folder") !== "folder")
      throw refused(`lies below ${folder}, which is no folder`)
  const before = kinds.get(name)
  if (before !== undefined && !(before === "folder" && kind === "folder")) throw refused("is there twice")
  const admit = (entry: Headers): Admitted => ({ name, above, kind, entry })
  if (kind === "folder") return admit({ ...plain, name: `${name}/`, type: "directory", mode: 0o755 })
  if (kind === "link") {
    const target = header.linkname ?? ""
    if (!staysInside(target, parts.length - 1)) throw refused("links to what is outside of the folder")
    return admit({ ...plain, name, type: "symlink", linkname: target, mode: 0o777, size: 0 })
  }
  // Whatever a file says of sticky bits and other owners is left out.
  const mode = ((header.mode ?? 0) & 0o111) === 0 ? 0o644 : 0o755
  return admit({ ...plain, name, type: "file", mode, size: size ?? 0 })
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
