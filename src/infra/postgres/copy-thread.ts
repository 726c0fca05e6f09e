/**
 * The threads that copy files; see `copy.ts`. Their calls are synchronous: one that goes through the event
 * loop costs several times what it takes to copy a block. Blocks are small enough to be compared while the processor
 * still has them at hand.
 */
import * as fs from "node:fs"
import * as path from "node:path"
import { parentPort, workerData } from "node:worker_threads"
import { codeOf } from "../error-code.ts"

export interface CopyJob {
  readonly from: string
  readonly into: string
  readonly names: ReadonlyArray<string>
  readonly owner: { readonly uid: number; readonly gid: number } | undefined
  readonly complete: boolean
  /** Shared by the threads: whether to stop, and which file is next. */
  readonly shared: Int32Array
}

export const stopCell = 0
export const nextCell = 1

export type CopyReport =
  /** More was written and compared, the last of it in this file. */
  | { readonly _tag: "Copied"; readonly bytes: number; readonly name: string }
  | { readonly _tag: "Done" }
  | { readonly _tag: "Failed"; readonly message: string; readonly code: string | undefined }

const blockSize = 256 * 1024
/** Told of together. */
const reportSize = 8 * 1_048_576

const copyAll = (
  { from, into, names, owner, complete, shared }: CopyJob,
  tell: (report: CopyReport) => void
) => {
  const buffer = Buffer.allocUnsafeSlow(blockSize)
  const again = Buffer.allocUnsafeSlow(blockSize)
  const stopped = () => Atomics.load(shared, stopCell) !== 0
  let untold = 0
  let last = ""
  const report = () => {
    if (untold > 0) tell({ _tag: "Copied", bytes: untold, name: last })
    untold = 0
  }

  const copyContent = (name: string, source: number, target: number) => {
    for (let at = 0; !stopped(); ) {
      const size = fs.readSync(source, buffer, 0, blockSize, at)
      if (size === 0) return
      for (let put = 0; put < size; ) put += fs.writeSync(target, buffer, put, size - put, at + put)
      for (let got = 0; got < size; ) {
        const part = fs.readSync(target, again, got, size - got, at + got)
        if (part === 0) throw new Error(`${name} is shorter than what was written`)
        got += part
      }
      if (buffer.compare(again, 0, size, 0, size) !== 0) {
        throw new Error(`${name} is not what was written, at byte ${at}`)
      }
      at += size
      untold += size
      last = name
      if (untold >= reportSize) report()
      // Less than was asked for: that was the end of the file.
      if (size < blockSize) return
    }
  }

  const copyOne = (name: string) => {
    const source = opened(path.join(from, name), complete)
    if (source === undefined) return
    try {
      const target = fs.openSync(path.join(into, name), "wx+", 0o600)
      try {
        if (owner !== undefined) fs.fchownSync(target, owner.uid, owner.gid)
        copyContent(name, source, target)
      } finally {
        fs.closeSync(target)
      }
    } finally {
      fs.closeSync(source)
    }
  }

  while (!stopped()) {
    const name = names[Atomics.add(shared, nextCell, 1)]
    if (name === undefined) break
    copyOne(name)
  }
  report()
}

/** Of a live server's files some go while they are copied. */
const opened = (file: string, complete: boolean): number | undefined => {
  try {
    return fs.openSync(file, "r")
  } catch (error) {
    if (!complete && codeOf(error) === "ENOENT") return undefined
    throw error
  }
}

const run = (job: CopyJob, tell: (report: CopyReport) => void) => {
  try {
    copyAll(job, tell)
    tell({ _tag: "Done" })
  } catch (error) {
    // The others end as well.
    Atomics.store(job.shared, stopCell, 1)
    tell({
      _tag: "Failed",
      message: error instanceof Error ? error.message : String(error),
      code: codeOf(error)
    })
  }
}

/** Undefined in threads that do something else and load this file with what starts it. */
const job: CopyJob | undefined = workerData ?? undefined
if (parentPort !== null && job !== undefined) {
  const port = parentPort
  run(job, (report) => port.postMessage(report))
}
