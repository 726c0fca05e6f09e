/** From a verdict to what is stored: conditions, deadlines, stalling, history, and the fields of the queue. */
import * as Effect from "effect/Effect"
import type { Phase } from "#schemas/condition.ts"
import { storableText } from "#src/storable.ts"
import {
  type ConditionInput,
  eventType,
  findCondition,
  isGood,
  nextConditions,
  severityOf,
  transitions
} from "./conditions.ts"
import type { OutsideCall } from "./external-call.ts"
import type { EngineOptions } from "./options.ts"
import type { Registration } from "./Reconciler.ts"
import { listed, type Outcome, type Verdict } from "./run-result.ts"
import type { Claimed, EngineEvent, Recorded } from "./WorkStore.ts"

export interface RunResult {
  readonly outcome: Outcome
  readonly driftFound: boolean
  readonly recorded: Recorded
}

/** The resource is as it was. */
export const quiet = (claimed: Claimed): Recorded => ({
  lease: { orgId: claimed.orgId, uid: claimed.uid, token: claimed.token },
  dueIn: 0,
  priority: 2,
  attempt: 0,
  waitingOn: null,
  seen: claimed.seen,
  lastError: null,
  handledRetry: null,
  change: undefined
})

const isFinal = (phase: Phase): boolean =>
  phase === "ready" || phase === "waiting" || phase === "failed" || phase === "deleted"

/** What a far end said may hold anything; a message of any length too. */
const storable = (verdict: Verdict): Verdict => {
  const cleaned = <A extends { readonly reason: string; readonly message: string }>(told: A): A => ({
    ...told,
    reason: storableText(told.reason, 100),
    message: storableText(told.message)
  })
  return {
    ...verdict,
    ready: cleaned(verdict.ready),
    synced: cleaned(verdict.synced),
    differences: verdict.differences.map(({ field, message }) => ({
      field: storableText(field),
      message: storableText(message)
    })),
    driftEvents: verdict.driftEvents.map(cleaned),
    happened: (verdict.happened ?? []).map(cleaned),
    lastError: verdict.lastError === null ? null : storableText(verdict.lastError)
  }
}

export const report = Effect.fnUntraced(function* (
  registration: Registration,
  claimed: Claimed,
  options: EngineOptions,
  judged: Verdict,
  log: ReadonlyArray<OutsideCall>,
  lookWithin: number
) {
  const verdict = storable(judged)
  const { conditions: previous } = yield* claimed.reported
  const before = findCondition(previous, "Ready")
  const attempt = verdict.fruitless ? claimed.attempt + 1 : 0
  const deadline = registration.kind.deadlineSeconds * 1000
  const unfinished = !isFinal(verdict.phase) && claimed.paused === null
  // Otherwise it would go to and fro between having failed and being on its way.
  const stillFailed =
    unfinished &&
    claimed.phase === "failed" &&
    claimed.retryToken === null &&
    before?.observedGeneration === claimed.generation
  const overdue =
    (unfinished && verdict.phase === claimed.phase && claimed.phaseAge > deadline) ||
    (stillFailed && before?.reason === "DeadlineExceeded")
  const exhausted = attempt >= options.stallAfter && verdict.outcome !== "terminal"
  const phase: Phase = !claimed.deleting && (overdue || stillFailed) ? "failed" : verdict.phase
  const late = `${claimed.deleting ? "It was not gone" : "It did not get ready"} within ${registration.kind.deadlineSeconds} s. `
  const ready = overdue
    ? { ...verdict.ready, reason: "DeadlineExceeded", message: late + verdict.ready.message }
    : verdict.ready

  const drift = findCondition(previous, "Drifted")
  const inputs: ReadonlyArray<ConditionInput> = [
    { type: "Ready", ...ready },
    { type: "Synced", ...verdict.synced },
    exhausted || overdue
      ? {
          type: "Stalled",
          status: "true",
          reason: overdue ? "DeadlineExceeded" : "NoProgress",
          message: overdue
            ? `${late}Tried rarely from now on; retry by hand once the cause is gone`
            : `${attempt} tries in a row made no progress${verdict.lastError === null ? "" : ` (${verdict.lastError})`}. Tried rarely from now on; retry by hand once the cause is gone`
        }
      : { type: "Stalled", status: "false", reason: "Advancing", message: "Tries are making progress" },
    verdict.drift === "open" || (verdict.drift === undefined && drift?.status === "true")
      ? {
          type: "Drifted",
          status: "true",
          reason: "DriftFound",
          message:
            verdict.drift === "open"
              ? `Differs from what was asked for: ${listed(verdict.differences, false)}`
              : (drift?.message ?? "")
        }
      : { type: "Drifted", status: "false", reason: "NoDrift", message: "The last look found no difference" },
    claimed.paused === null
      ? { type: "Paused", status: "false", reason: "NotPaused", message: "Reconciling is not paused" }
      : {
          type: "Paused",
          status: "true",
          reason: "PausedByUser",
          message: `Paused by ${claimed.paused.by}: ${claimed.paused.reason}`
        }
  ]
  const conditions = nextConditions(previous, inputs, claimed.generation, claimed.now)
  const events: ReadonlyArray<EngineEvent> = [
    ...verdict.driftEvents,
    ...(verdict.happened ?? []),
    ...log
      .filter((call) => call.effect === "write")
      .map((call) => ({ type: "Outside" as const, reason: call.name, message: call.ok ? "done" : "failed" })),
    ...(verdict.lastError === null
      ? []
      : [
          {
            type: severityOf(registration.kind, verdict.errorReason ?? verdict.synced.reason),
            reason: verdict.errorReason ?? verdict.synced.reason,
            message: verdict.lastError
          }
        ]),
    ...transitions(previous, conditions)
      .filter((condition) => verdict.lastError === null || condition.type !== "Synced")
      .map((condition) => ({
        type: eventType(registration.kind, condition),
        reason: condition.reason,
        message: `${condition.type} is ${condition.status}: ${condition.message}`
      }))
  ]
  const result: RunResult = {
    outcome: verdict.outcome,
    driftFound: verdict.driftEvents.length > 0,
    recorded: {
      ...quiet(claimed),
      // A stalled resource keeps its slow pace whatever the look said, but for what may recover without a step.
      dueIn:
        overdue && verdict.outcome !== "ready"
          ? Math.max(verdict.dueIn, Math.min(options.stalledRetryMs / 4, lookWithin))
          : verdict.dueIn,
      priority: verdict.priority,
      attempt,
      waitingOn: verdict.waitingOn,
      lastError: verdict.lastError,
      handledRetry: claimed.retryToken,
      change: {
        status: verdict.status === undefined ? claimed.status : verdict.status,
        facts: verdict.facts ?? {},
        phase,
        conditions,
        differences: verdict.differences,
        observedGeneration:
          verdict.outcome === "retryable" || verdict.outcome === "paused"
            ? claimed.observedGeneration
            : claimed.generation,
        settled:
          verdict.outcome === "ready" &&
          // What is remarked has to be looked for again, to be taken back.
          verdict.ready.reason === "Converged" &&
          conditions.every((condition) => condition.status === (isGood(condition.type) ? "true" : "false")),
        deleting: claimed.deleting,
        gone: verdict.outcome === "deleted",
        events
      }
    }
  }
  return result
})
