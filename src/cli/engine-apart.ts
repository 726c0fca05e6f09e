/**
 * The engine on a thread of its own (`SVC_ENGINE_THREAD=own`), so that reconciles never delay requests. It meets the API
 * in the store, as another process would; this is what is said besides: that it runs, that it is to stop, and what it
 * has counted. A thread that ends by itself is started again.
 */
import { Worker } from "node:worker_threads"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type { CliFailure } from "./failure.ts"
import { failure } from "./failure.ts"

export type Asked = { readonly _tag: "Stop" } | { readonly _tag: "Metrics"; readonly id: number }
export type Told =
  | { readonly _tag: "Started" }
  /** Why it does not start, or why it ends. */
  | { readonly _tag: "Failed"; readonly message: string }
  | { readonly _tag: "Metrics"; readonly id: number; readonly page: string }

/** Longer than what runs there takes to stop at most. After it the thread is ended, and leases end by themselves. */
const drainMs = 45_000
const metricsMs = 2_000
/** Garbage is collected more often, and each thread keeps less room for it. */
const youngMegabytes = 4

/** A thread that has run for so long was well: its end is the first of its kind. */
const wellMs = 60_000
/** Before it is started again, by how many times it has ended shortly after its start. */
const pauseMs = (times: number) => Math.min(30_000, 1_000 * 2 ** times)

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
  /** What it had counted when it was last asked. */
  let last: ReadonlyArray<string> = []

  /** One thread, until it ends by itself; fails with why it did. */
  const once = Effect.callback<never, string>((resume) => {
    let message = "it ended"
    const thread = new Worker(file, {
      env: { ...env },
      resourceLimits: { maxYoungGenerationSizeMb: youngMegabytes }
    })
    worker = thread
    const exited = new Promise<void>((resolve) => thread.once("exit", () => resolve()))
    thread.on("message", (told: Told) => {
      if (told._tag === "Started") startedOnce = true
      else if (told._tag === "Failed") message = told.message
      else waiting.get(told.id)?.([told.page])
    })
    thread.on("error", (error) => {
      message = error instanceof Error ? (error.stack ?? error.message) : String(error)
    })
    void exited.then(() => {
      if (worker === thread) worker = undefined
      for (const answer of waiting.values()) answer([])
      resume(Effect.fail(message))
    })
    return Effect.promise(async () => {
      thread.postMessage({ _tag: "Stop" } satisfies Asked)
      const patience = setTimeout(() => void thread.terminate(), drainMs)
      await exited
      clearTimeout(patience)
    })
  })

  return {
    run: Effect.gen(function* () {
      for (let times = 0; ; times++) {
        const begun = yield* Clock.currentTimeMillis
        const message = yield* Effect.flip(once)
        if (!startedOnce) return yield* Effect.fail(failure(message))
        yield* Effect.logError(`The engine's thread ended and is started again: ${message}`)
        if ((yield* Clock.currentTimeMillis) - begun > wellMs) times = 0
        yield* Effect.sleep(pauseMs(times))
      }
    }),
    metrics: Effect.callback<ReadonlyArray<string>>((resume) => {
      if (worker === undefined) return resume(Effect.succeed(last))
      const id = asked++
      const answer = (pages: ReadonlyArray<string>) => {
        clearTimeout(patience)
        waiting.delete(id)
        // Counters that fall would look like a restart.
        if (pages.length > 0) last = pages
        resume(Effect.succeed(last))
      }
      const patience = setTimeout(() => answer([]), metricsMs)
      waiting.set(id, answer)
      worker.postMessage({ _tag: "Metrics", id } satisfies Asked)
    })
  }
}
