/**
 * Copies the files of a server's data folder into a folder of its own. What is read is written and read back, and the
 * two are compared byte for byte: a copy that differs fails. (A copy inside of the file system, by reflink or
 * `copy_file_range`, would leave nothing to compare with, since the source goes on changing.)
 *
 * Threads do the copying (`copy-thread.ts`), so that nobody else waits for it. Memory is flat: two small
 * buffers for each thread, whatever the size.
 */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { Worker } from "node:worker_threads"
import * as Effect from "effect/Effect"
import { durable } from "../host/durable.ts"
import { type HostError, hostError } from "../host/Host.ts"
import type { RunAs } from "../host/launch.ts"
import type { BackupFiles } from "./backup.ts"
import { type CopyJob, type CopyReport, stopCell } from "./copy-thread.ts"

export interface CopyOptions {
  readonly from: string
  /** Exists, and is nobody else's. */
  readonly into: string
  readonly what: Pick<BackupFiles, "folders" | "files">
  /** Who the copy belongs to. */
  readonly owner: RunAs | undefined
  /** Told of every part that was written and compared. */
  readonly onBytes: (bytes: number) => void
  /** Whether a file that is not there fails the copy. Of a live server's files some go while they are copied. */
  readonly complete?: boolean
  /** False: whoever asks makes it durable, later, with what else comes into the folder. */
  readonly durable?: boolean
}

/** Bytes from which on a second thread is worth its start. */
const muchBytes = 64 * 1_048_576

/** Ends only after the last byte was written: whoever interrupts it may remove the folder. */
export const copyFiles = (options: CopyOptions): Effect.Effect<void, HostError> =>
  Effect.callback<void, HostError>((resume) => {
    const controller = new AbortController()
    const done = copyAll(options, controller.signal).then(
      () => resume(Effect.void),
      (cause: unknown) => resume(Effect.fail(toError(cause)))
    )
    return Effect.promise(() => {
      controller.abort()
      return done
    })
  })

const toError = hostError("The files of a database could not be copied")

const copyAll = async (options: CopyOptions, signal: AbortSignal): Promise<void> => {
  const { from, into, what, owner, onBytes } = options
  for (const folder of what.folders) {
    await fs.mkdir(path.join(into, folder), { recursive: true, mode: 0o700 })
    if (owner !== undefined) await fs.chown(path.join(into, folder), owner.uid, owner.gid)
  }
  const names = what.files.map(({ path: name }) => name)
  const job: CopyJob = {
    from,
    into,
    names,
    owner: owner === undefined ? undefined : { uid: owner.uid, gid: owner.gid },
    complete: options.complete === true,
    shared: new Int32Array(new SharedArrayBuffer(8))
  }
  const stop = () => void Atomics.store(job.shared, stopCell, 1)
  signal.addEventListener("abort", stop, { once: true })
  if (signal.aborted) stop()
  const flush = flusher(into)
  const bytes = what.files.reduce((sum, file) => sum + file.bytes, 0)
  const threads = names.length > 1 && bytes >= muchBytes ? 2 : 1
  const ended = await Promise.allSettled(
    Array.from({ length: names.length === 0 ? 0 : threads }, () =>
      inThread(job, (report) => {
        onBytes(report.bytes)
        flush(report)
      })
    )
  )
  signal.throwIfAborted()
  for (const one of ended) if (one.status === "rejected") throw one.reason
  if (options.durable !== false) await durable(into, signal, () => onBytes(0))
}

type Copied = Extract<CopyReport, { readonly _tag: "Copied" }>

const inThread = (job: CopyJob, copied: (report: Copied) => void): Promise<void> =>
  new Promise((resolve, reject) => {
    const worker = new Worker(new URL("./copy-thread.ts", import.meta.url), {
      workerData: job,
      // Settings hold secrets, and it needs none.
      env: {}
    })
    let failure: Error | undefined = new Error("the thread that copies ended early")
    worker.on("message", (report: CopyReport) => {
      if (report._tag === "Copied") copied(report)
      else if (report._tag === "Done") failure = undefined
      else failure = Object.assign(new Error(report.message), { code: report.code })
    })
    worker.on("error", (error) => {
      Atomics.store(job.shared, stopCell, 1)
      failure = error instanceof Error ? error : new Error(String(error))
    })
    // Not before: until then it may write.
    worker.on("exit", () => (failure === undefined ? resolve() : reject(failure)))
  })

/**
 * Has the disk begin with what was written while more is copied: what is left to do at the end is little. Nothing
 * relies on it, so its faults and its end do not matter.
 */
const flusher = (into: string) => {
  let busy = false
  let due = 0
  return ({ bytes, name }: Copied) => {
    due += bytes
    if (busy || due < flushBytes) return
    due = 0
    busy = true
    const flushed = async () => {
      const handle = await fs.open(path.join(into, name), "r")
      try {
        await handle.datasync()
      } finally {
        await handle.close()
      }
    }
    void flushed()
      .catch(() => {})
      .finally(() => {
        busy = false
      })
  }
}
const flushBytes = 32 * 1_048_576
