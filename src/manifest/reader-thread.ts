/** The thread that large texts are read in; see `Reader.ts`. */
import { parentPort } from "node:worker_threads"
import { locateAll, read, type Source } from "./reading.ts"

export type Job =
  | { readonly _tag: "Read"; readonly source: Source }
  | { readonly _tag: "Locate"; readonly source: Source; readonly pointers: ReadonlyArray<string> }

parentPort?.on("message", (job: Job) =>
  parentPort?.postMessage(job._tag === "Read" ? read(job.source) : locateAll(job.source, job.pointers))
)
