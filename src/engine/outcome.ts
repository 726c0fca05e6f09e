/** What it means that the steps of a run ended without an error. */
import { newFacts } from "./facts.ts"
import type { EngineOptions } from "./options.ts"
import {
  backoff,
  driftDelay,
  listed,
  type Outcome,
  pollDelay,
  underway,
  whilePaused
} from "./outcome-types.ts"
import type { Difference, Observation, Registration, Retryable } from "./Reconciler.ts"
import type { Claimed, StatusChange } from "./WorkStore.ts"

/** What the steps of one run came to. */
export interface RunSteps {
  readonly observation: Observation<unknown>
  /** Differences that the first look found. */
  readonly found: ReadonlyArray<Difference>
  readonly foundAbsent: boolean
  readonly steps: number
  /** Why the last step failed, which was to change nothing that users rely on. */
  readonly failure: Retryable | undefined
}

export const outcomeOf = (
  registration: Registration,
  claimed: Claimed,
  options: EngineOptions,
  run: RunSteps,
  random: number
): Outcome => {
  const { observation, found, foundAbsent, steps, failure } = run
  const learned = newFacts(claimed.facts, observation)
  const happened = observation._tag === "Present" && learned !== undefined ? observation.happened : undefined
  const settledBefore = claimed.phase === "ready" && claimed.observedGeneration === claimed.generation
  const drifted = settledBefore && !claimed.deleting && (foundAbsent || found.length > 0)
  const driftText = listed(found, foundAbsent)
  const open = observation._tag === "Absent" || observation.differences.length > 0
  const { maintenance = [], note = { reason: "Converged", message: "Ready" } } =
    observation._tag === "Present" ? observation : {}
  // The run ends here so that its facts are stored; its next step follows at once, ahead of routine work.
  const cutShort = learned !== undefined && (open || maintenance.length > 0)
  const base = {
    // What is away tells nothing: what was last seen stays, unless it is away for good.
    status:
      observation._tag === "Present"
        ? (observation.status as StatusChange["status"])
        : claimed.deleting
          ? null
          : undefined,
    facts: learned,
    happened: happened === undefined ? [] : [{ type: "Warning" as const, ...happened }],
    differences:
      observation._tag === "Present"
        ? observation.differences
        : claimed.deleting
          ? []
          : [{ field: "", message: "Not there" }],
    drift: drifted
      ? open
        ? ("open" as const)
        : ("repaired" as const)
      : open
        ? undefined
        : ("none" as const),
    driftEvents: drifted
      ? [
          {
            type: "Warning" as const,
            reason: "DriftFound",
            message: `What is there differs from what was asked for: ${driftText}`
          },
          ...(open || claimed.paused !== null
            ? []
            : [
                {
                  type: "Normal" as const,
                  reason: "DriftRepaired",
                  message: `Brought back to what was asked for: ${driftText}`
                }
              ])
        ]
      : [],
    waitingOn: null,
    lastError: null
  }
  const poll = (fallback: number): number => pollDelay(observation, fallback)

  if (claimed.deleting && claimed.paused === null) {
    const gone = observation._tag === "Absent"
    const message = gone ? "It is gone" : "Being removed; looked at again shortly"
    return {
      ...base,
      outcome: gone ? "deleted" : "deleting",
      phase: gone ? "deleted" : "deleting",
      ready: { status: "false", reason: "Deleting", message },
      synced: { status: gone ? "true" : "false", reason: "Deleting", message },
      dueIn: poll(backoff(claimed.attempt, options, random)),
      priority: 1,
      madeNoProgress: !gone && steps > 0
    }
  }
  const present = observation._tag === "Present" && observation.ready
  if (claimed.paused !== null) {
    const interval = driftDelay(registration, random)
    return {
      ...base,
      outcome: "paused",
      phase: whilePaused(claimed, present),
      ready: present
        ? { status: "true", reason: "Converged", message: "Ready; reconciling is paused" }
        : {
            status: "false",
            reason: "PausedByUser",
            message: "Not ready, and not touched while reconciling is paused"
          },
      synced: open
        ? {
            status: "false",
            reason: "PausedByUser",
            message: `Left as it is while paused: ${listed(base.differences, observation._tag === "Absent")}`
          }
        : asAskedFor,
      dueIn: Math.min(interval, claimed.paused.endsIn ?? interval),
      priority: 2,
      madeNoProgress: false
    }
  }
  if (present && !open) {
    // Steps that mend nothing back off as others do.
    const madeNoProgress = maintenance.length > 0 && steps > 0 && !cutShort
    const dueIn = madeNoProgress
      ? backoff(claimed.attempt, options, random)
      : cutShort
        ? 0
        : poll(maintenance.length > 0 ? 1_000 : driftDelay(registration, random))
    return {
      ...base,
      outcome: "ready",
      phase: "ready",
      ready: { status: "true", ...(madeNoProgress ? withFailure(note, failure) : note) },
      synced: asAskedFor,
      dueIn,
      priority: cutShort ? 0 : 2,
      madeNoProgress,
      ...(madeNoProgress && failure !== undefined
        ? { lastError: failure.message, errorReason: failure.reason ?? "UpkeepFailed" }
        : {})
    }
  }
  const reason = (observation._tag === "Present" ? observation.reason : undefined) ?? "Progressing"
  const message =
    (observation._tag === "Present" ? observation.message : undefined) ??
    (open
      ? `Still to do: ${listed(base.differences, observation._tag === "Absent")}`
      : "Not ready yet; looked at again shortly")
  // On its way by itself, or steps remain: a look soon. Steps that change nothing back off like failures.
  const madeNoProgress = open && steps > 0 && !cutShort
  return {
    ...base,
    outcome: "progressing",
    phase: underway(claimed),
    ready: { status: "false", reason, message },
    synced: open ? { status: "false", reason, message } : asAskedFor,
    dueIn: madeNoProgress ? backoff(claimed.attempt, options, random) : cutShort ? 0 : poll(1_000),
    priority: cutShort ? 0 : 1,
    madeNoProgress
  }
}

const asAskedFor = {
  status: "true",
  reason: "Converged",
  message: "What is there matches what was asked for"
} as const

/** What is told of something that can be relied on, and whose maintenance fails. */
const withFailure = (
  note: { readonly reason: string; readonly message: string },
  failure: Retryable | undefined
) =>
  failure === undefined
    ? note
    : {
        reason: note.reason === "Converged" ? (failure.reason ?? "UpkeepFailed") : note.reason,
        message: `${note.message}. A step of its maintenance failed: ${failure.message}`
      }

export const waitingForChildren = (claimed: Claimed, options: EngineOptions): Outcome => {
  const { count = 0, first = "" } = claimed.children ?? {}
  const others = count > 1 ? ` and ${count - 1} more` : ""
  const message = `Waits until ${first}${others} in it ${count > 1 ? "are" : "is"} deleted`
  return {
    outcome: "deleting",
    phase: "deleting",
    ready: { status: "false", reason: "WaitingForChildren", message },
    synced: { status: "false", reason: "WaitingForChildren", message },
    status: undefined,
    differences: [],
    drift: undefined,
    driftEvents: [],
    dueIn: options.waitMs,
    priority: 1,
    madeNoProgress: false,
    waitingOn: null,
    lastError: null
  }
}
