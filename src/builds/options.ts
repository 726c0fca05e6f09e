/** Bounds of builds; a reference, so that tests can have their own. */
import * as Context from "effect/Context"

export interface BuildOptions {
  readonly cpus: number
  readonly memoryMb: number
  /** For all steps together. */
  readonly totalMs: number
  /** How long nothing may be printed. */
  readonly silentMs: number
  /** Bytes that are kept of what a build prints. */
  readonly logBytes: number
  /** Bytes of what a build may leave. */
  readonly resultBytes: number
  /** How long fetching an image that apps are built in may come no nearer. */
  readonly pullStallMs: number
  /** Bytes that one may print at all. */
  readonly printedBytes: number
  /** MiB that it may write to its file system, and how often that is measured. */
  readonly diskMb: number
  readonly measureMs: number
  /** Files that have to be free on the disk for anything to be built. */
  readonly freeFiles: number
  /** Bytes of what package managers fetched that are kept for the next build. */
  readonly cacheBytes: number
}

export const BuildOptions = Context.Reference<BuildOptions>("svc/builds/BuildOptions", {
  defaultValue: () => ({
    cpus: 1,
    memoryMb: 2_048,
    totalMs: 1_200_000,
    silentMs: 300_000,
    logBytes: 4 * 1024 * 1024,
    resultBytes: 2 * 1024 * 1024 * 1024,
    pullStallMs: 120_000,
    printedBytes: 64 * 1024 * 1024,
    diskMb: 8_192,
    measureMs: 2_000,
    freeFiles: 100_000,
    cacheBytes: 1024 * 1024 * 1024
  })
})
