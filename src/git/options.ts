/** Bounds of fetching from repositories; a reference, so that tests can have their own. */
import * as Context from "effect/Context"

export interface GitOptions {
  /** Bytes of the packs, and of the archive, of a commit with its submodules. */
  readonly fileBytes: number
  /** Of memory that a git command takes for itself, each: what it maps of files is not counted. */
  readonly memoryBytes: number
  /** Entries of a commit's tree, with those of its submodules. */
  readonly entries: number
  /** Of all git commands that one call takes, each. */
  readonly cpuSeconds: number
  /** For asking what a ref points to. */
  readonly askMs: number
  /** For fetching a commit with all that belongs to it. */
  readonly fetchMs: number
  readonly submodules: number
  readonly submoduleDepth: number
  /** Fetches of this process at once, and of these those of one organization. */
  readonly atOnce: number
  readonly atOnceOfOne: number
  /** The same of asking what a ref points to: it is short, and waits for no fetch. */
  readonly asksAtOnce: number
  readonly asksAtOnceOfOne: number
}

export const GitOptions = Context.Reference<GitOptions>("svc/git/GitOptions", {
  defaultValue: () => ({
    fileBytes: 1024 * 1024 * 1024,
    memoryBytes: 512 * 1024 * 1024,
    entries: 100_000,
    cpuSeconds: 300,
    askMs: 30_000,
    fetchMs: 600_000,
    submodules: 20,
    submoduleDepth: 3,
    atOnce: 4,
    atOnceOfOne: 2,
    asksAtOnce: 8,
    asksAtOnceOfOne: 4
  })
})
