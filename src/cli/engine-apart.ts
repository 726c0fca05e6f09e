/**
 * The engine on a thread of its own (`SVC_ENGINE_THREAD=own`), so that reconciles never delay requests. It meets the API
 * in the store, as another process would; this is what is said besides: that it runs, that it is to stop, and what it
 * has counted. A thread that ends by itself is started again.
 */
import { Worker } from "node:worker_threads"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import type { CliFailure } from "./failure.ts"
import { failure } from "./failure.ts"

export type Asked = { readonly _tag: "Stop" } | { readonly _tag: "Metrics"; readonly id: number }
export type Told =
  | { readonly _tag: "Started" }
  /** Why it does not start, or why it ends. */
  | { readonly _tag: "Failed"; readonly message: string }
  | { readonly _tag: "Metrics"; readonly id: number; readonly page: string }

/** For reconciles under way to be released. After it the thread is ended, and their leases end by themselves. */
const drainMs = 20_000
const metricsMs = 2_000
/** Garbage is collected more often, and each thread keeps less room for it. */
const youngMegabytes = 4

/** Why the thread ended. */
class Ended {
  readonly started: boolean
  readonly message: string
  constructor(started: boolean, message: string) {
    this.started = started
    this.message = message
  }
}

const backoff = Schedule.min([Schedule.exponential("1 second"), Schedule.spaced("30 seconds")])

export interface EngineApart {
  /** While the scope is open. Fails when the engine cannot be started the first time. */
  readonly run: Effect.Effect<never, CliFailure>
  /** What the thread has counted, while it runs. */
  readonly metrics: Effect.Effect<ReadonlyArray<string>>
}

/** `env`: the settings of the thread. `file`: what it runs. */
export const makeEngineApart = (
  env: Readonly<Record<string, string | undefined>>,
  file = new URL("./engine-thread.ts", import.meta.url)
): EngineApart => {
  let worker: Worker | undefined
  let asked = 0
  const waiting = new Map<number, (pages: ReadonlyArray<string>) => void>()
  let startedOnce = false

  const once = Effect.callback<never, Ended>((resume) => {
    let started = false
    let message = "it ended"
    const thread = new Worker(file, {
      env: { ...env },
      resourceLimits: { maxYoungGenerationSizeMb: youngMegabytes }
    })
    worker = thread
    const exited = new Promise<void>((resolve) => thread.once("exit", () => resolve()))
    thread.on("message", (told: Told) => {
      if (told._tag === "Started") {
        started = true
        startedOnce = true
      } else if (told._tag === "Failed") message = told.message
      else waiting.get(told.id)?.([told.page])
    })
    thread.on("error", (error) => {
      message = error instanceof Error ? (error.stack ?? error.message) : String(error)
    })
    void exited.then(() => {
      if (worker === thread) worker = undefined
      for (const answer of waiting.values()) answer([])
      resume(Effect.fail(new Ended(started, message)))
    })
    return Effect.promise(async () => {
      thread.postMessage({ _tag: "Stop" } satisfies Asked)
      const patience = setTimeout(() => void thread.terminate(), drainMs)
      await exited
      clearTimeout(patience)
    })
  })

  return {
    run: once.pipe(
      Effect.tapError(({ message }) =>
        startedOnce
          ? Effect.logError(`The engine's thread ended and is started again: ${message}`)
          : Effect.void
      ),
      Effect.retry({ schedule: backoff, while: () => startedOnce }),
      Effect.mapError(({ message }) => failure(message))
    ),
    metrics: Effect.callback<ReadonlyArray<string>>((resume) => {
      if (worker === undefined) return resume(Effect.succeed([]))
      const id = asked++
      const answer = (pages: ReadonlyArray<string>) => {
        clearTimeout(patience)
        waiting.delete(id)
        resume(Effect.succeed(pages))
      }
      const patience = setTimeout(() => answer([]), metricsMs)
      waiting.set(id, answer)
      worker.postMessage({ _tag: "Metrics", id } satisfies Asked)
    })
  }
}
