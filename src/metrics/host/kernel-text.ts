/**
 * Reading what the kernel tells in files (proc(5), cgroups(7)). These have no disk behind them, so they are read at once:
 * asking a thread for each of thousands of small files would cost ten times the processor time.
 */
import { closeSync, openSync, readdirSync, readSync } from "node:fs"

const buffer = Buffer.alloc(65_536)

/** Undefined: it is not there, may not be read, or its process has just ended. */
export const kernelText = (file: string): string | undefined => {
  let opened: number | undefined
  try {
    opened = openSync(file, "r")
    return buffer.toString("latin1", 0, readSync(opened, buffer, 0, buffer.length, null))
  } catch {
    return undefined
  } finally {
    if (opened !== undefined) closeSync(opened)
  }
}

/** The names in a folder of the kernel; none where there is no such folder. */
export const kernelNames = (folder: string): ReadonlyArray<string> => {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}

/** A file that holds one number. `max` and nothing are no number. */
export const kernelNumber = (file: string): number | undefined => {
  const text = kernelText(file)?.trim()
  return text === undefined || !/^-?\d+$/.test(text) ? undefined : Number(text)
}

/** The number after a name at the beginning of a line. */
export const field = (text: string | undefined, name: string): number | undefined => {
  const found = new RegExp(`^${name}:?\\s+(\\d+)`, "m").exec(text ?? "")?.[1]
  return found === undefined ? undefined : Number(found)
}
