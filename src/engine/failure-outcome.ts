/** What it means that a run ended with an error: try again, wait for another resource, or give up. */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Random from "effect/Random"
import type { EngineOptions } from "./options.ts"
import { backoff, never, type Outcome, underway, whilePaused } from "./outcome-types.ts"
import type { ReconcileError } from "./Reconciler.ts"
import type { Claimed } from "./WorkStore.ts"

export const failureOutcome = Effect.fnUntraced(function* (
  claimed: Claimed,
  options: EngineOptions,
  cause: Cause.Cause<ReconcileError>,
  /** Milliseconds that the next look may be away when this run did nothing but look. */
  lookWithin: number
) {
  const random = yield* Random.next
  const error = cause.reasons.find((reason) => reason._tag === "Fail")?.error
  const base = {
    status: undefined,
    differences: claimed.reported.differences,
    drift: undefined,
    driftEvents: [],
    waitingOn: null
  }
  if (error === undefined) {
    // The cause may hold anything: it goes to the log, and people get the first line.
    yield* Effect.logError("a reconciler failed unexpectedly", cause)
  }
  if (error?._tag === "Waiting") {
    const reason = error.reason ?? "WaitingForDependency"
    const outcome: Outcome = {
      ...base,
      outcome: "waiting",
      phase: claimed.deleting ? "deleting" : "waiting",
      ready: { status: "false", reason, message: error.message },
      synced: { status: "false", reason, message: error.message },
      dueIn: options.waitMs * (0.75 + random / 2),
      priority: 1,
      madeNoProgress: false,
      waitingOn: error.on,
      lastError: null
    }
    return outcome
  }
  if (error?._tag === "Terminal") {
    const reason = error.reason ?? "InvalidSpec"
    const message = `${error.message}. Not tried again until the specification changes or a retry is asked for`
    const outcome: Outcome = {
      ...base,
      outcome: "terminal",
      phase: claimed.deleting ? "deleting" : "failed",
      ready: { status: "false", reason, message },
      synced: { status: "false", reason, message },
      dueIn: claimed.deleting ? options.stalledRetryMs : never,
      priority: 1,
      madeNoProgress: true,
      lastError: error.message
    }
    return outcome
  }
  const said = error?.message ?? `Internal fault: ${firstLine(Cause.squash(cause))}`
  const reason = error?.reason ?? "ReconcileFailed"
  const pace = backoff(claimed.attempt, options, random)
  const dueIn = error?.againAfterMs ?? (error === undefined ? pace : Math.min(pace, lookWithin))
  const message = `${said}. Try ${claimed.attempt + 1} failed; tried again in ${Math.max(1, Math.round(dueIn / 1000))} s`
  // A look that fails says nothing about readiness by itself; what was ready stays in doubt, not down.
  const wasReady = claimed.phase === "ready"
  const outcome: Outcome = {
    ...base,
    outcome: "retryable",
    phase: claimed.paused === null ? underway(claimed) : whilePaused(claimed, false),
    ready: { status: wasReady ? "unknown" : "false", reason, message },
    synced: { status: "false", reason, message },
    dueIn,
    priority: 1,
    madeNoProgress: error?.againAfterMs === undefined,
    lastError: said
  }
  return outcome
})

const firstLine = (defect: unknown): string =>
  (defect instanceof Error ? defect.message : "see the log").split("\n", 1)[0]?.slice(0, 200) ?? ""
