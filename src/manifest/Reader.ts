/**
 * Reads the texts of requests. A large one takes seconds, in which nobody else would be answered and no lease
 * renewed; so it is read in a thread of its own, one at a time, with bounds on its memory and its time.
 */
import { Worker } from "node:worker_threads"
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as RcRef from "effect/RcRef"
import * as Semaphore from "effect/Semaphore"
import type { Position } from "#src/api/source-location.ts"
import type { Job } from "./reader-thread.ts"
import { locateAll, type Reading, read, type Source } from "./reading.ts"

/** Characters up to which reading takes less than asking somebody else to. */
export const shortSource = 16 * 1024
/** The largest texts that are taken need a fifth of either. */
const mostMegabytes = 1_024
const longest = "20 seconds"
/** Waiting for others included. */
const mostPatience = "60 seconds"

/** So many large texts wait that this one would for too long. */
export class ReaderBusy extends Data.TaggedError("ReaderBusy")<object> {}

export class Reader extends Context.Service<
  Reader,
  {
    readonly read: (source: Source) => Effect.Effect<Reading, ReaderBusy>
    /** Where the parts stand that pointers into the document name. */
    readonly locate: (
      source: Source,
      pointers: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyArray<Position>>
  }
>()("svc/manifest/Reader") {
  static readonly layer = Layer.effect(
    Reader,
    Effect.gen(function* () {
      // It costs tens of megabytes and is needed rarely.
      const thread = yield* RcRef.make({ acquire: start, idleTimeToLive: "30 seconds" })
      const turns = yield* Semaphore.make(1)
      const elsewhere = <A>(job: Job) =>
        Effect.scoped(Effect.flatMap(RcRef.get(thread), (worker) => ask<A>(worker, job))).pipe(
          Effect.timeout(longest),
          // Whatever it is doing, it does it no longer.
          Effect.onError(() => RcRef.invalidate(thread)),
          Effect.tapError((error) => Effect.logWarning("a manifest could not be read", error)),
          turns.withPermits(1),
          Effect.timeoutOrElse({ duration: mostPatience, orElse: () => Effect.fail(new ReaderBusy()) })
        )
      return Reader.of({
        read: (source) =>
          source.text.length <= shortSource
            ? Effect.sync(() => read(source))
            : Effect.catch(elsewhere<Reading>({ _tag: "Read", source }), (error) =>
                error._tag === "ReaderBusy" ? Effect.fail(error) : Effect.succeed(tooCostly)
              ),
        locate: (source, pointers) =>
          pointers.length === 0
            ? Effect.succeed([])
            : source.text.length <= shortSource
              ? Effect.sync(() => locateAll(source, pointers))
              : // A fault without its line is better than none.
                Effect.catch(elsewhere<ReadonlyArray<Position>>({ _tag: "Locate", source, pointers }), () =>
                  Effect.succeed([])
                )
      })
    })
  )
}

const tooCostly: Reading = {
  _tag: "Unreadable",
  faults: [{ pointer: "", message: "needs more memory or time to be read than is given to it" }]
}

class ThreadFailed extends Data.TaggedError("ThreadFailed")<{ readonly cause: unknown }> {}

const start = Effect.acquireRelease(
  Effect.sync(() => {
    const worker = new Worker(new URL("./reader-thread.ts", import.meta.url), {
      resourceLimits: { maxOldGenerationSizeMb: mostMegabytes },
      // Settings hold secrets, and it needs none.
      env: {}
    })
    // It must not keep a process alive that is done.
    worker.unref()
    return worker
  }),
  (worker) => Effect.promise(() => worker.terminate())
)

const ask = <A>(worker: Worker, job: Job) =>
  Effect.callback<A, ThreadFailed>((resume) => {
    const done = (effect: Effect.Effect<A, ThreadFailed>) => {
      worker.off("message", answered).off("error", failed).off("exit", failed)
      resume(effect)
    }
    const answered = (answer: A) => done(Effect.succeed(answer))
    const failed = (cause: unknown) => done(Effect.fail(new ThreadFailed({ cause })))
    worker.on("message", answered).on("error", failed).on("exit", failed)
    worker.postMessage(job)
    return Effect.sync(() => void worker.off("message", answered).off("error", failed).off("exit", failed))
  })
