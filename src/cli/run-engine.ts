/** The engine on a thread of its own, as that thread sees it; `engine-apart.ts` is the other side. */
import { parentPort } from "node:worker_threads"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as PrometheusMetrics from "effect/observability/PrometheusMetrics"
import { engineApart, telemetry } from "#src/main.ts"
import type { Asked, Told } from "./engine-apart.ts"
import { localConfig } from "./local-config.ts"
import { releaseMemory } from "./release-memory.ts"

/** What still holds the thread when everything has stopped does not keep the process. */
const exitMs = 2_000

const saidOf = (cause: Cause.Cause<{ readonly message: string }>): string => {
  const error: unknown = Cause.squash(cause)
  return error instanceof Error ? error.message : String(error)
}

export const runEngine = (): void => {
  const tell = (message: Told) => parentPort?.postMessage(message)
  const fiber = Effect.runFork(
    Effect.gen(function* () {
      yield* Layer.build(engineApart.pipe(Layer.provideMerge(telemetry)))
      tell({ _tag: "Started" })
      yield* Effect.forkScoped(releaseMemory)
      return yield* Effect.never
    }).pipe(Effect.scoped, Effect.provide(localConfig))
  )
  parentPort?.on("message", (asked: Asked) => {
    if (asked._tag === "Stop") return void Effect.runFork(Fiber.interrupt(fiber))
    void Effect.runPromise(PrometheusMetrics.format()).then((page) =>
      tell({ _tag: "Metrics", id: asked.id, page })
    )
  })
  fiber.addObserver((exit) => {
    if (Exit.isFailure(exit) && !Cause.hasInterruptsOnly(exit.cause))
      tell({ _tag: "Failed", message: saidOf(exit.cause) })
    parentPort?.close()
    setTimeout(() => process.exit(), exitMs).unref()
  })
}
