/** In place of the engine's thread: ends in the way that the test asks for. */
import * as fs from "node:fs"
import { parentPort } from "node:worker_threads"
import type { Asked, Told } from "#src/cli/engine-apart.ts"

const tell = (told: Told) => parentPort?.postMessage(told)
const log = process.env["LOG"] ?? ""
const starts = fs.readFileSync(log, "utf8").split("\n").length
fs.appendFileSync(log, "started\n")

if (process.env["HOW"] === "refuses") {
  tell({ _tag: "Failed", message: "there is no such region" })
} else {
  tell({ _tag: "Started" })
  parentPort?.on("message", (asked: Asked) => {
    if (asked._tag === "Metrics") return tell({ _tag: "Metrics", id: asked.id, page: `starts ${starts}\n` })
    fs.appendFileSync(log, "drained\n")
    parentPort?.close()
  })
  if (starts === 1)
    setTimeout(() => {
      throw new Error("a fault of the program")
    }, 50)
}
