/** From an outcome to what is stored: conditions, deadlines, stalling, history, and the fields of the queue. */
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
import type { ExternalCall } from "./external-call.ts"
import type { EngineOptions } from "./options.ts"
import { listed, type Outcome, type OutcomeName } from "./outcome-types.ts"
import type { Registration } from "./Reconciler.ts"
import type { Claimed, EngineEvent, Recorded } from "./WorkStore.ts"

export interface RunResult {
  readonly outcome: OutcomeName
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
const storable = (outcome: Outcome): Outcome => {
  const cleaned = <A extends { readonly reason: string; readonly message: string }>(told: A): A => ({
    ...told,
    reason: storableText(told.reason, 100),
    message: storableText(told.message)
  })
  return {
    ...outcome,
    ready: cleaned(outcome.ready),
    synced: cleaned(outcome.synced),
    differences: outcome.differences.map(({ field, message }) => ({
      field: storableText(field),
      message: storableText(message)
    })),
    driftEvents: outcome.driftEvents.map(cleaned),
    happened: (outcome.happened ?? []).map(cleaned),
    lastError: outcome.lastError === null ? null : storableText(outcome.lastError)
  }
}

export const report = Effect.fnUntraced(function* (
  registration: Registration,
  claimed: Claimed,
  options: EngineOptions,
  judged: Outcome,
  log: ReadonlyArray<ExternalCall>,
  lookWithin: number
) {
  const outcome = storable(judged)
  const { conditions: previous } = claimed.reported
  const before = findCondition(previous, "Ready")
  const attempt = outcome.madeNoProgress ? claimed.attempt + 1 : 0
  const deadline = registration.kind.deadlineSeconds * 1000
  const unfinished = !isFinal(outcome.phase) && claimed.paused === null
  // Otherwise it would go to and fro between having failed and being on its way.
  const stillFailed =
    unfinished &&
    claimed.phase === "failed" &&
    claimed.retryToken === null &&
    before?.observedGeneration === claimed.generation
  const overdue =
    (unfinished && outcome.phase === claimed.phase && claimed.phaseAge > deadline) ||
    (stillFailed && before?.reason === "DeadlineExceeded")
  const exhausted = attempt >= options.stallAfter && outcome.outcome !== "terminal"
  const phase: Phase = !claimed.deleting && (overdue || stillFailed) ? "failed" : outcome.phase
  const late = `${claimed.deleting ? "It was not gone" : "It did not get ready"} within ${registration.kind.deadlineSeconds} s. `
  const ready = overdue
    ? { ...outcome.ready, reason: "DeadlineExceeded", message: late + outcome.ready.message }
    : outcome.ready

  const drift = findCondition(previous, "Drifted")
  const inputs: ReadonlyArray<ConditionInput> = [
    { type: "Ready", ...ready },
    { type: "Synced", ...outcome.synced },
    exhausted || overdue
      ? {
          type: "Stalled",
          status: "true",
          reason: overdue ? "DeadlineExceeded" : "NoProgress",
          message: overdue
            ? `${late}Tried rarely from now on; retry by hand once the cause is gone`
            : `${attempt} tries in a row made no progress${outcome.lastError === null ? "" : ` (${outcome.lastError})`}. Tried rarely from now on; retry by hand once the cause is gone`
        }
      : { type: "Stalled", status: "false", reason: "Advancing", message: "Tries are making progress" },
    outcome.drift === "open" || (outcome.drift === undefined && drift?.status === "true")
      ? {
          type: "Drifted",
          status: "true",
          reason: "DriftFound",
          message:
            outcome.drift === "open"
              ? `Differs from what was asked for: ${listed(outcome.differences, false)}`
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
    ...outcome.driftEvents,
    ...(outcome.happened ?? []),
    ...log
      .filter((call) => call.effect === "write")
      .map((call) => ({ type: "Outside" as const, reason: call.name, message: call.ok ? "done" : "failed" })),
    ...(outcome.lastError === null
      ? []
      : [
          {
            type: severityOf(registration.kind, outcome.errorReason ?? outcome.synced.reason),
            reason: outcome.errorReason ?? outcome.synced.reason,
            message: outcome.lastError
          }
        ]),
    ...transitions(previous, conditions)
      .filter((condition) => outcome.lastError === null || condition.type !== "Synced")
      .map((condition) => ({
        type: eventType(registration.kind, condition),
        reason: condition.reason,
        message: `${condition.type} is ${condition.status}: ${condition.message}`
      }))
  ]
  const result: RunResult = {
    outcome: outcome.outcome,
    driftFound: outcome.driftEvents.length > 0,
    recorded: {
      ...quiet(claimed),
      // A stalled resource keeps its slow pace whatever the look said, but for what may recover without a step.
      dueIn:
        overdue && outcome.outcome !== "ready"
          ? Math.max(outcome.dueIn, Math.min(options.stalledRetryMs / 4, lookWithin))
          : outcome.dueIn,
      priority: outcome.priority,
      attempt,
      waitingOn: outcome.waitingOn,
      lastError: outcome.lastError,
      handledRetry: claimed.retryToken,
      change: {
        status: outcome.status === undefined ? claimed.status : outcome.status,
        facts: outcome.facts ?? {},
        phase,
        conditions,
        differences: outcome.differences,
        observedGeneration:
          outcome.outcome === "retryable" || outcome.outcome === "paused"
            ? claimed.observedGeneration
            : claimed.generation,
        settled:
          outcome.outcome === "ready" &&
          // What is remarked has to be looked for again, to be taken back.
          outcome.ready.reason === "Converged" &&
          conditions.every((condition) => condition.status === (isGood(condition.type) ? "true" : "false")),
        deleting: claimed.deleting,
        gone: outcome.outcome === "deleted",
        events
      }
    }
  }
  return result
})
