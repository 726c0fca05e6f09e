/** What a process keeps on its heap: told after a collection, so that it is no matter of when the engine collects. */
import type { ChildProcess } from "node:child_process"

const teller = `data:text/javascript,${encodeURIComponent(
  "process.on('message', () => { gc(); gc(); process.send(process.memoryUsage().heapUsed) })"
)}`

/** Arguments of a program that is to tell it. It needs a channel for messages (`ipc`). */
export const heapTeller: ReadonlyArray<string> = ["--expose-gc", "--import", teller]

/** Megabytes. */
export const heapOf = (child: ChildProcess): Promise<number> =>
  new Promise((resolve) => {
    child.once("message", (bytes) => resolve(Number(bytes) / 1e6))
    child.send("heap")
  })
