/** Whether the kernel ended a container because its memory was used up, from the kernel's log (Documentation/ABI/testing/dev-kmsg). */
import * as fs from "node:fs"

const most = 4 * 1024 * 1024

/** False also where the log cannot be read. */
export const endedForMemory = (containerId: string): boolean => {
  let log: number | undefined
  try {
    log = fs.openSync("/dev/kmsg", fs.constants.O_RDONLY | fs.constants.O_NONBLOCK)
    const record = Buffer.alloc(8192)
    for (let read = 0; read < most; ) {
      // One record each; at the end the kernel has nothing to give without waiting.
      const length = fs.readSync(log, record, 0, record.length, null)
      if (length === 0) return false
      read += length
      const text = record.toString("latin1", 0, length)
      if (text.includes("oom-kill:") && text.includes(containerId)) return true
    }
    return false
  } catch {
    return false
  } finally {
    if (log !== undefined) fs.closeSync(log)
  }
}
