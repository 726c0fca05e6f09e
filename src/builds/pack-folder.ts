/**
 * A folder as the archive that is uploaded: what `.gitignore` and `.svcignore` leave, in a fixed order and without times
 * and owners, so that the same files give the same archive.
 */
import { createHash } from "node:crypto"
import * as fs from "node:fs"
import * as path from "node:path"
import { Transform } from "node:stream"
import { pipeline } from "node:stream/promises"
import ignore, { type Ignore } from "ignore"
import { type Pack, pack } from "tar-stream"
import { digestOf, makeFacts, type SourceFacts } from "./facts.ts"

/** Of no use to anybody else: they are made anew where the source is built. */
const never: ReadonlySet<string> = new Set([".git", "node_modules", ".venv", "__pycache__", ".DS_Store"])
const ignoreFiles = [".gitignore", ".svcignore"]

interface Rules {
  /** Where they count from. */
  readonly folder: string
  readonly rules: Ignore
}

interface Found {
  /** Relative to the folder, with slashes. */
  readonly name: string
  readonly kind: "file" | "folder" | "link"
}

/** What belongs to the source, each folder before what is in it. */
export const sourceFiles = (root: string): ReadonlyArray<Found> => {
  const found: Array<Found> = []
  const walk = (folder: string, above: ReadonlyArray<Rules>) => {
    const texts = ignoreFiles
      .map((name) => path.join(root, folder, name))
      .filter((file) => fs.statSync(file, { throwIfNoEntry: false })?.isFile() === true)
      .map((file) => fs.readFileSync(file, "utf8"))
    const rules = texts.length === 0 ? above : [...above, { folder, rules: ignore().add(texts.join("\n")) }]
    const entries = fs.readdirSync(path.join(root, folder), { withFileTypes: true })
    for (const entry of entries.toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
      if (never.has(entry.name)) continue
      const name = folder === "" ? entry.name : `${folder}/${entry.name}`
      const kind = entry.isDirectory()
        ? "folder"
        : entry.isSymbolicLink()
          ? "link"
          : entry.isFile()
            ? "file"
            : undefined
      if (kind === undefined || isIgnored(rules, name, kind === "folder")) continue
      found.push({ name, kind })
      if (kind === "folder") walk(name, rules)
    }
  }
  walk("", [])
  return found
}

/** The rules of inner folders count more, as git has it. */
const isIgnored = (all: ReadonlyArray<Rules>, name: string, isFolder: boolean): boolean => {
  let is = false
  for (const { folder, rules } of all) {
    const relative = folder === "" ? name : name.slice(folder.length + 1)
    const { ignored, unignored } = rules.test(isFolder ? `${relative}/` : relative)
    if (ignored) is = true
    else if (unignored) is = false
  }
  return is
}

/** What its plan is made of. */
export const factsOf = (root: string, files: ReadonlyArray<Found>): SourceFacts => {
  const { facts, interest, lock, note, text } = makeFacts()
  for (const { name, kind } of files) {
    note(name)
    if (kind !== "file") continue
    const file = path.join(root, name)
    const how = interest(name, fs.statSync(file).size)
    if (how === "text") text(name, fs.readFileSync(file))
    if (how === "lock") lock(name, digestOf(fs.readFileSync(file)))
  }
  return facts()
}

/** Writes the archive, and answers its SHA-256 in hexadecimal. */
export const packFolder = async (
  root: string,
  files: ReadonlyArray<Found>,
  target: string,
  signal: AbortSignal
): Promise<string> => {
  const writer = pack()
  const hash = createHash("sha256")
  const hashed = new Transform({
    transform(chunk: Buffer, _, done) {
      hash.update(chunk)
      done(null, chunk)
    }
  })
  const written = pipeline(writer, hashed, fs.createWriteStream(target, { mode: 0o600 }), { signal })
  // It is awaited below; what adds entries may fail before.
  written.catch(() => undefined)
  try {
    for (const file of files) await add(writer, root, file)
    writer.finalize()
  } catch (error) {
    writer.destroy(error instanceof Error ? error : new Error(String(error)))
    throw error
  }
  await written
  return hash.digest("hex")
}

const add = async (writer: Pack, root: string, { name, kind }: Found): Promise<void> => {
  const at = path.join(root, name)
  const header = { name, mtime: new Date(0), uid: 0, gid: 0 }
  if (kind === "folder") return void writer.entry({ ...header, type: "directory", mode: 0o755 })
  if (kind === "link")
    return void writer.entry({ ...header, type: "symlink", linkname: fs.readlinkSync(at), mode: 0o777 })
  const file = await fs.promises.open(at)
  try {
    const { size, mode } = await file.stat()
    const entry = writer.entry({ ...header, size, mode: (mode & 0o111) === 0 ? 0o644 : 0o755 })
    // A file that grows meanwhile is taken as it was.
    if (size === 0) entry.end()
    else await pipeline(file.createReadStream({ start: 0, end: size - 1, autoClose: false }), entry)
  } finally {
    await file.close()
  }
}
