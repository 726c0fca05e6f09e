/**
 * The one gate through which every call to the outside world passes.
 *
 * It gives each call a span, a metric and a line in the operation log of the reconcile that made it, and it is
 * where tests and drills inject faults. Reads look; writes change something out there. A reconciler's second
 * pass over a ready resource must make no write.
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Metric from "effect/Metric"

export type ExternalEffect = "read" | "write"

/** One line of the operation log. The name is a constant such as `redis.start`, so it can hold no secret. */
export interface ExternalCall {
  readonly name: string
  readonly effect: ExternalEffect
  readonly startedAt: number
  readonly durationMs: number
  readonly ok: boolean
}

export interface ExternalCallHook {
  /** Runs before the call; failing with a defect or interrupting here stands for a fault before it. */
  readonly before: (name: string, effect: ExternalEffect) => Effect.Effect<void>
  /** Runs after the call succeeded; a defect here stands for a crash between acting and recording. */
  readonly after: (name: string, effect: ExternalEffect) => Effect.Effect<void>
}

/** Fault injection: does nothing unless a test or a drill provides another. */
export const ExternalCallHook = Context.Reference<ExternalCallHook | undefined>(
  "svc/engine/ExternalCallHook",
  {
    defaultValue: () => undefined
  }
)

/**
 * Passes while the run still holds its lease, and interrupts it otherwise. A process that slept through its lease has
 * looked at a world that others have changed since: what it would make now might belong to something deleted.
 */
export const LeaseGuard = Context.Reference<Effect.Effect<void>>("svc/engine/LeaseGuard", {
  defaultValue: () => Effect.void
})

/** Collects the calls of one reconcile. */
export const ExternalCallLog = Context.Reference<Array<ExternalCall> | undefined>(
  "svc/engine/ExternalCallLog",
  {
    defaultValue: () => undefined
  }
)

const calls = Metric.counter("svc_outside_calls_total", {
  description: "Calls to the outside world by name, effect and outcome",
  incremental: true
})

/** `externalCall("redis.start", "write")(effect)` */
export const externalCall =
  (name: string, effect: ExternalEffect) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.gen(function* () {
      const hook = yield* ExternalCallHook
      const log = yield* ExternalCallLog
      if (hook !== undefined) yield* hook.before(name, effect)
      if (effect === "write") yield* yield* LeaseGuard
      const startedAt = yield* Clock.currentTimeMillis
      const exit = yield* Effect.exit(self)
      const ok = Exit.isSuccess(exit)
      log?.push({ name, effect, startedAt, durationMs: (yield* Clock.currentTimeMillis) - startedAt, ok })
      yield* Metric.update(Metric.withAttributes(calls, { name, effect, outcome: ok ? "ok" : "failed" }), 1)
      if (hook !== undefined && ok) yield* hook.after(name, effect)
      return yield* exit
    }).pipe(
      Effect.withSpan(
        name,
        { kind: "client", attributes: { "svc.effect": effect } },
        { captureStackTrace: false }
      )
    )
