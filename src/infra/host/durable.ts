/** Has everything below a folder on the disk before it goes on. */
import { execFile } from "node:child_process"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { HostError } from "./Host.ts"
import { helperEnvironment } from "./helper-environment.ts"

export const makeDurable = (folder: string, onActive?: () => void): Effect.Effect<void, HostError> =>
  Effect.tryPromise({
    try: (signal) => durable(folder, signal, onActive),
    catch: (cause) => new HostError({ message: `The files in ${folder} cannot be made durable`, cause })
  })

/** Longest time that the system is given for all at once. */
const patienceMs = 600_000

/**
 * The whole file system at once, where the system can (syncfs(2)): a thousand small files one by one take longer than
 * their copy. It tells nothing of how far it is: as long as it may take counts as being at work.
 */
export const durable = async (
  folder: string,
  signal: AbortSignal,
  onActive: () => void = () => {}
): Promise<void> => {
  const until = performance.now() + patienceMs
  const ticking = setInterval(() => {
    if (performance.now() < until) onActive()
  }, 1_000)
  const once = await new Promise<boolean>((resolve) =>
    execFile("sync", ["-f", folder], { env: helperEnvironment(), timeout: patienceMs, signal }, (error) =>
      resolve(error === null)
    )
  )
  clearInterval(ticking)
  signal.throwIfAborted()
  if (once) return
  await synced(folder)
  for (const entry of await fs.readdir(folder, { withFileTypes: true, recursive: true })) {
    signal.throwIfAborted()
    if (entry.isFile() || entry.isDirectory()) await synced(path.join(entry.parentPath, entry.name))
    onActive()
  }
}

const synced = async (target: string) => {
  const handle = await fs.open(target, "r")
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}
