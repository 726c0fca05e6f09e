/**
 * Copies the files of a server's data folder into a folder of its own. What is read is written and read back, and the
 * two are compared byte for byte: a copy that differs fails. (A copy inside of the file system, by reflink or
 * `copy_file_range`, would leave nothing to compare with, since the source goes on changing.)
 *
 * Memory is flat: two buffers for each of a few files at once, whatever the size.
 */
import { execFile } from "node:child_process"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { HostError, type RunAs } from "./Host.ts"
import { helperEnvironment } from "./helper-environment.ts"
import type { BackupFiles } from "./postgres-backup.ts"

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
}

const atOnce = 4
const bufferSize = 1 << 20

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

const toError = (cause: unknown) =>
  new HostError({
    message: `The files of a database could not be copied: ${cause instanceof Error ? cause.message : String(cause)}`,
    cause,
    ...(cause instanceof Error && "code" in cause && typeof cause.code === "string"
      ? { code: cause.code }
      : {})
  })

const copyAll = async (options: CopyOptions, signal: AbortSignal): Promise<void> => {
  const { into, what, owner } = options
  const own = (target: string) =>
    owner === undefined ? Promise.resolve() : fs.chown(target, owner.uid, owner.gid)
  for (const folder of what.folders) {
    await fs.mkdir(path.join(into, folder), { recursive: true, mode: 0o700 })
    await own(path.join(into, folder))
  }
  const rest = what.files.values()
  let broken = false
  const worker = async () => {
    const buffers = [Buffer.allocUnsafe(bufferSize), Buffer.allocUnsafe(bufferSize)] as const
    try {
      for (const { path: name } of rest) {
        if (broken) return
        signal.throwIfAborted()
        await copyOne(options, name, buffers, signal)
      }
    } catch (error) {
      // The others end as well, and none of them writes after this has failed.
      broken = true
      throw error
    }
  }
  const ended = await Promise.allSettled(Array.from({ length: atOnce }, worker))
  for (const one of ended) if (one.status === "rejected") throw one.reason
  await durable(into, ["", ...what.folders, ...what.files.map(({ path: name }) => name)])
}

const copyOne = async (
  { from, into, owner, onBytes, complete }: CopyOptions,
  name: string,
  [buffer, again]: readonly [Buffer, Buffer],
  signal: AbortSignal
): Promise<void> => {
  const source = await fs.open(path.join(from, name), "r").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT" && complete !== true) return undefined
    throw error
  })
  if (source === undefined) return
  try {
    const target = await fs.open(path.join(into, name), "wx+", 0o600)
    try {
      if (owner !== undefined) await target.chown(owner.uid, owner.gid)
      for (let at = 0; ; ) {
        signal.throwIfAborted()
        const { bytesRead } = await source.read(buffer, 0, bufferSize, at)
        if (bytesRead === 0) break
        for (let put = 0; put < bytesRead; ) {
          put += (await target.write(buffer, put, bytesRead - put, at + put)).bytesWritten
        }
        for (let got = 0; got < bytesRead; ) {
          const part = await target.read(again, got, bytesRead - got, at + got)
          if (part.bytesRead === 0) throw new Error(`${name} is shorter than what was written`)
          got += part.bytesRead
        }
        if (buffer.compare(again, 0, bytesRead, 0, bytesRead) !== 0) {
          throw new Error(`${name} is not what was written, at byte ${at}`)
        }
        at += bytesRead
        onBytes(bytesRead)
        // Less than was asked for: that was the end of the file.
        if (bytesRead < bufferSize) break
      }
    } finally {
      await target.close()
    }
  } finally {
    await source.close()
  }
}

/**
 * The whole file system at once, where the system can (syncfs(2)): a thousand small files one by one take longer than
 * their copy.
 */
const durable = async (into: string, names: ReadonlyArray<string>): Promise<void> => {
  const once = await new Promise<boolean>((resolve) =>
    execFile("sync", ["-f", into], { env: helperEnvironment(), timeout: 600_000 }, (error) =>
      resolve(error === null)
    )
  )
  if (once) return
  for (const name of names) {
    const handle = await fs.open(path.join(into, name), "r").catch((error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") return undefined
      throw error
    })
    if (handle === undefined) continue
    try {
      await handle.sync()
    } finally {
      await handle.close()
    }
  }
}
