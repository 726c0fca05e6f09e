/**
 * What the plan of a build is made of: which files there are, and the texts of a few. The command line reads it from a
 * folder and the server from an archive, both by these rules, so that they come to the same plan.
 */
import { createHash } from "node:crypto"
import { lockfiles } from "./package-managers.ts"

export interface SourceFacts {
  /** Names in each folder, by its path; that of the source itself is empty. */
  readonly folders: ReadonlyMap<string, ReadonlySet<string>>
  /** Texts of files that plans are made of, by their paths. */
  readonly texts: ReadonlyMap<string, string>
  /** SHA-256 of lock files, by their paths. */
  readonly locks: ReadonlyMap<string, string>
}

export const settingsFile = "svc.yaml"
const texts: ReadonlySet<string> = new Set([
  "package.json",
  ".nvmrc",
  ".node-version",
  "requirements.txt",
  "pyproject.toml",
  ".python-version",
  "Procfile",
  "go.mod",
  settingsFile,
  "Dockerfile",
  "Containerfile",
  ".dockerignore"
])
const locks: ReadonlySet<string> = new Set([
  ...lockfiles.map(([file]) => file),
  "uv.lock",
  "poetry.lock",
  "go.sum"
])
/** Bytes of one text, of all of them, and how many folders deep one may lie. */
const longest = 256 * 1024
const longestAll = 4 * 1024 * 1024
const deepest = 4

export const baseOf = (path: string): string => path.slice(path.lastIndexOf("/") + 1)
/** Empty: the folder of the source. */
export const folderOf = (path: string): string => path.slice(0, Math.max(0, path.lastIndexOf("/")))

export const makeFacts = () => {
  const folders = new Map<string, Set<string>>([["", new Set()]])
  const read = new Map<string, string>()
  const digests = new Map<string, string>()
  let bytes = 0

  const note = (path: string): void => {
    const folder = folderOf(path)
    const known = folders.get(folder)
    if (known !== undefined) known.add(baseOf(path))
    else {
      folders.set(folder, new Set([baseOf(path)]))
      note(folder)
    }
  }

  return {
    /** Something of that path is there. */
    note,
    /** How the content of a file of this path and size counts. */
    interest: (path: string, size: number): "text" | "lock" | "none" => {
      if (path.split("/").length > deepest + 1) return "none"
      const name = baseOf(path)
      if (locks.has(name)) return "lock"
      return (texts.has(name) || name.endsWith(".Dockerfile")) &&
        size <= longest &&
        bytes + size <= longestAll
        ? "text"
        : "none"
    },
    text: (path: string, content: Buffer): void => {
      bytes += content.length
      read.set(path, content.toString("utf8"))
      // Most projects of Python have no other lock file.
      if (baseOf(path) === "requirements.txt") digests.set(path, digestOf(content))
    },
    lock: (path: string, digest: string): void => {
      digests.set(path, digest)
    },
    facts: (): SourceFacts => ({ folders, texts: read, locks: digests })
  }
}

export const digestOf = (content: Buffer): string => createHash("sha256").update(content).digest("hex")
